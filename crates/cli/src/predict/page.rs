//! What is predicted, as text and as a page.

use std::fmt::Write as _;

use poundlock_bench::plot::{Group, Line, Look, Shape, Track, groups, lines};

use super::{DOUBTFUL, Report};
use crate::message::Failure;
use crate::output::counted;
use crate::sim::page::Section;
use crate::sim::sheet::Sheet;
use crate::sim::{self};

/// How many locks are shown.
const SHOWN: usize = 10;

/// On every line that follows from a replay that is not to be trusted.
fn doubt(report: &Report) -> &'static str {
    if report.self_test.is_doubtful() { " (doubtful)" } else { "" }
}

fn locks(report: &Report) -> Sheet {
    let header = ["acquired/s", "held", "waiting", "in the replay", "lock"].map(str::to_owned).to_vec();
    let rows = report.locks.iter().take(SHOWN).map(|row| {
        vec![
            format!("{:.0}", row.acquisitions_a_second),
            format!("{:.3}", row.held),
            format!("{:.3}", row.waiting),
            format!("{:.3}", row.waiting_simulated),
            format!("{} ({}){}", row.lock, row.kind, doubt(report)),
        ]
    });
    Sheet { header, rows: rows.collect(), words: &[4] }
}

fn answers(report: &Report) -> Sheet {
    let header = ["work", "least", "most", "if"].map(str::to_owned).to_vec();
    let rows = report.answers.iter().map(|answer| {
        let figure = |value: f64| format!("{value:.2}");
        let work = answer.work;
        let question = format!("{}{}", answer.question, doubt(report));
        vec![figure(work.all), figure(work.least), figure(work.most), question]
    });
    Sheet { header, rows: rows.collect(), words: &[3] }
}

fn curve(report: &Report) -> Sheet {
    let header = ["CPUs", "threads", "work", "least", "most", "waited for most"].map(str::to_owned).to_vec();
    let rows = report.curve.iter().map(|point| {
        let most = match &point.lock {
            Some((lock, waiting)) => format!("{lock}: {waiting:.1} threads{}", doubt(report)),
            None => format!("nothing{}", doubt(report)),
        };
        let figure = |value: f64| format!("{value:.2}");
        vec![
            point.cpus.to_string(),
            point.threads.to_string(),
            figure(point.work.all),
            figure(point.work.least),
            figure(point.work.most),
            most,
        ]
    });
    Sheet { header, rows: rows.collect(), words: &[5] }
}

/// What was replayed, and how far it is to be trusted.
fn about(report: &Report) -> Vec<String> {
    let mut said = vec![format!(
        "{} on {}, with {} mutexes: {} replayed on {}",
        report.command.join(" "),
        report.recorded_on,
        report.recorded_lock,
        counted(report.stretches as u64, "stretch"),
        report.machine
    )];
    if report.others >= 0.02 {
        said.push(format!(
            "other programs used {:.2} CPUs meanwhile: the self-test has them, too; what is predicted is without them",
            report.others
        ));
    }
    said.push(format!(
        "self-test: {} of the measured rate; off by {:.0} %{}",
        report.self_test.rate.text(),
        report.self_test.off * 100.0,
        if report.self_test.is_doubtful() {
            format!(", more than {:.0} %: take all that follows with care", DOUBTFUL * 100.0)
        } else {
            String::new()
        }
    ));
    said.extend(report.left_out.iter().cloned());
    said
}

/// For a terminal.
pub(super) fn text(report: &Report) -> String {
    let mut text = format!("{}{}\n\n", report.advice, doubt(report));
    for line in about(report) {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{line}");
    }
    let _ = write!(text, "\nseconds of all threads in a second:\n{}", locks(report).text());
    if !report.answers.is_empty() {
        let _ = write!(text, "\nwork done, of what it does as it is:\n{}", answers(report).text());
    }
    if !report.curve.is_empty() {
        let _ =
            write!(text, "\nwork done on other numbers of CPUs, of what it did:\n{}", curve(report).text());
    }
    if let Some(bend) = &report.bend {
        let _ = writeln!(text, "{bend}{}", doubt(report));
    }
    text
}

/// For a browser.
pub(super) fn html(report: &Report) -> Result<String, Failure> {
    let look = Look::ours(Shape::Disc);
    let of = |look| Some(look);
    let waits = report.locks.iter().take(SHOWN).map(|row| Group {
        label: row.lock.clone(),
        tracks: [(row.waiting, Look::published(Shape::Ring)), (row.waiting_simulated, look)]
            .map(|(value, look)| Track { points: vec![(0.0, None), (value, of(look))] })
            .into(),
    });
    let mut sections = vec![Section {
        name: "locks".to_owned(),
        about:
            "How long all threads wait for each lock in a second: as it was measured, and as it was replayed."
                .to_owned(),
        legend: vec![(Look::published(Shape::Ring), "measured".to_owned()), (look, "replayed".to_owned())],
        chart: groups(&waits.collect::<Vec<_>>(), "seconds")?,
        sheet: locks(report),
        notes: about(report),
    }];
    if !report.answers.is_empty() {
        let groups_of = report.answers.iter().map(|answer| Group {
            label: answer.question.clone(),
            tracks: vec![Track {
                points: [answer.work.least, answer.work.all, answer.work.most]
                    .map(|value| (value, Some(look)))
                    .into(),
            }],
        });
        sections.push(Section {
            name: "changes".to_owned(),
            about:
                "Work done, of what the program does as it is: the least, the middle and the most over the \
                    stretches and chances."
                    .to_owned(),
            legend: vec![(look, "least, all together, most".to_owned())],
            chart: groups(&groups_of.collect::<Vec<_>>(), "times the work")?,
            sheet: answers(report),
            notes: Vec::new(),
        });
    }
    if !report.curve.is_empty() {
        let line = Line {
            look,
            name: String::new(),
            points: report.curve.iter().map(|point| (point.cpus.into(), point.work.all)).collect(),
            spread: report
                .curve
                .iter()
                .map(|point| (point.cpus.into(), point.work.least, point.work.most))
                .collect(),
        };
        sections.push(Section {
            name: "CPUs".to_owned(),
            about: "Work done on other numbers of CPUs, of what it did on those that it was recorded on."
                .to_owned(),
            legend: vec![(look, "work".to_owned())],
            chart: lines(&[line], "CPUs", "times the work")?,
            sheet: curve(report),
            notes: report.bend.iter().cloned().collect(),
        });
    }
    sim::page::html("predict", "What would help", &format!("{}{}", report.advice, doubt(report)), &sections)
}
