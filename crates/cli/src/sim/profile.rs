//! `poundlock sim run --profile`: which words and which steps of a lock need transfers.

use std::collections::BTreeMap;

use poundlock_sim::NANOSECOND;
use poundlock_sim::experiment::Profile;
use poundlock_sim::profile::{Place, Row};
use serde::Serialize;

use super::sheet::Sheet;

/// Rows that add less than this share to the time, and to the transfers, are one row.
const LEAST: f64 = 0.01;

/// Figures, in all or an acquisition.
#[derive(Clone, Copy, Default, Serialize)]
struct Sums {
    accesses: f64,
    transfers: f64,
    from_afar: f64,
    /// In accesses that needed a transfer.
    nanoseconds: f64,
    /// Of these, in waits for other transfers of the line.
    nanoseconds_queued: f64,
}

impl Sums {
    fn add(&mut self, row: &Row) {
        self.accesses += row.accesses as f64;
        self.transfers += row.transfers as f64;
        self.from_afar += row.remote as f64;
        self.nanoseconds += row.time as f64 / NANOSECOND as f64;
        self.nanoseconds_queued += row.queued as f64 / NANOSECOND as f64;
    }

    fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Sums {
        let mut sums = Sums::default();
        rows.into_iter().for_each(|row| sums.add(row));
        sums
    }

    fn each(self, acquisitions: f64) -> Sums {
        let each = |sum: f64| sum / acquisitions;
        Sums {
            accesses: each(self.accesses),
            transfers: each(self.transfers),
            from_afar: each(self.from_afar),
            nanoseconds: each(self.nanoseconds),
            nanoseconds_queued: each(self.nanoseconds_queued),
        }
    }

    const HEADER: [&str; 5] = ["transfers", "afar", "ns", "queued", "accesses"];

    fn cells(self, acquisitions: f64) -> [String; 5] {
        let each = self.each(acquisitions);
        [
            format!("{:.2}", each.transfers),
            format!("{:.2}", each.from_afar),
            format!("{:.0}", each.nanoseconds),
            format!("{:.0}", each.nanoseconds_queued),
            format!("{:.2}", each.accesses),
        ]
    }
}

/// A row of the document of `--json`. Figures are an acquisition's.
#[derive(Serialize)]
pub(super) struct Access<'a> {
    #[serde(flatten)]
    place: &'a Place,
    #[serde(flatten)]
    each: Sums,
    after: Option<After<'a>>,
}

/// The access that made most of the transfers necessary.
#[derive(Serialize)]
struct After<'a> {
    #[serde(flatten)]
    place: &'a Place,
    share: f64,
}

/// The rows for `--json`.
pub(super) fn document(profile: &Profile) -> Vec<Access<'_>> {
    profile
        .rows
        .iter()
        .map(|row| Access {
            place: &row.place,
            each: Sums::of([row]).each(profile.acquisitions),
            after: row.reason.as_ref().map(|(place, _)| After { place, share: share(row) }),
        })
        .collect()
}

/// How many of the transfers had the most frequent reason.
fn share(row: &Row) -> f64 {
    row.reason.as_ref().map_or(0.0, |&(_, count)| count as f64 / row.transfers as f64)
}

/// What is done in which function, if that is known, and where.
fn step(place: &Place) -> String {
    let Place { operation, function, file, line, .. } = place;
    if function.is_empty() {
        format!("{operation}, {file}:{line}")
    } else {
        format!("{operation} in {function}, {file}:{line}")
    }
}

fn word(place: &Place) -> String {
    format!("{} {}", place.whose.name(), place.word)
}

/// Sums of the rows with the same key, those that took most time first.
fn groups(profile: &Profile, name: &str, key: impl Fn(&Place) -> String) -> Sheet {
    let mut groups: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in &profile.rows {
        groups.entry(key(&row.place)).or_default().push(row);
    }
    let mut groups: Vec<_> = groups.into_iter().map(|(name, rows)| (name, Sums::of(rows))).collect();
    groups.retain(|(_, sums)| sums.transfers > 0.0);
    groups.sort_by(|(_, a), (_, b)| b.nanoseconds.total_cmp(&a.nanoseconds));
    groups.push(("all".to_owned(), Sums::of(&profile.rows)));
    let header = core::iter::once(name).chain(Sums::HEADER).map(str::to_owned).collect();
    let row = |(name, sums): (String, Sums)| {
        core::iter::once(name).chain(sums.cells(profile.acquisitions)).collect()
    };
    Sheet { header, rows: groups.into_iter().map(row).collect(), words: &[0] }
}

/// The tables for a terminal: by word, by function, and by both.
pub(super) fn text(profile: &Profile) -> String {
    let words = groups(profile, "word", |place| format!("{}, line {}", word(place), place.cache_line));
    let functions = groups(profile, "function", |place| {
        let Place { function, file, .. } = place;
        if function.is_empty() { (*file).to_owned() } else { format!("{function}, {file}") }
    });
    format!("{}\n{}\n{}", words.text(), functions.text(), steps(profile).text())
}

fn steps(profile: &Profile) -> Sheet {
    let all = Sums::of(&profile.rows);
    let (shown, rest): (Vec<&Row>, Vec<&Row>) = profile.rows.iter().partition(|row| {
        let sums = Sums::of([*row]);
        sums.transfers > 0.0
            && (sums.nanoseconds >= all.nanoseconds * LEAST || sums.transfers >= all.transfers * LEAST)
    });
    let cells = |word: String, step: String, sums: Sums, after: String| {
        let figures = sums.cells(profile.acquisitions);
        [word, step].into_iter().chain(figures).chain([after]).collect::<Vec<_>>()
    };
    let mut rows: Vec<_> = shown
        .into_iter()
        .map(|row| {
            let after = row.reason.as_ref().map_or(String::new(), |(place, _)| {
                let within = if place.function.is_empty() { place.file } else { place.function };
                format!("{} {} in {within}, {:.0} %", word(place), place.operation, 100.0 * share(row))
            });
            cells(word(&row.place), step(&row.place), Sums::of([row]), after)
        })
        .collect();
    if !rest.is_empty() {
        rows.push(cells(format!("{} others", rest.len()), String::new(), Sums::of(rest), String::new()));
    }
    rows.push(cells("all".to_owned(), String::new(), all, String::new()));
    let mut header = vec!["word".to_owned(), "step".to_owned()];
    header.extend(Sums::HEADER.map(str::to_owned));
    header.push("most often after".to_owned());
    Sheet { header, rows, words: &[0, 1, 7] }
}
