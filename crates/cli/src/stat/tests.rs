//! What a report says of recorded figures, in all its forms.

use std::collections::BTreeMap;
use std::sync::Arc;

use poundlock_names::{Choice, LockName, RwLocks};
use poundlock_statfile::{LockKind, LockStats, Site, Snapshot, ThreadStats};

use super::diagnosis::{self, Finding};
use super::figures::Figures;
use super::report::{About, Report, STILL_RUNNING, Wanted};
use super::sampler::{Estimate, Outcome, Process, Sleep, Times};
use super::text::{self, Length, Style};
use super::{json, page};

const MS: u64 = 1_000_000;

/// A lock with all its waits at one place.
fn waited(address: u64, kind: LockKind, waits: u64, ns: u64) -> LockStats {
    let site = Site { stack: Arc::from([address + 1]), contended: waits, wait_ns: ns, ..Site::default() };
    LockStats {
        address,
        kind,
        slot: address as u32,
        acquisitions: 2 * waits,
        contended: waits,
        wait_total_ns: ns,
        wait_max_ns: ns / waits.max(1),
        sites: vec![site],
        ..LockStats::default()
    }
}

/// A process whose threads have lived for `lived_ns` together.
fn process(lived_ns: u64, locks: Vec<LockStats>) -> Snapshot {
    Snapshot {
        pid: 7,
        exe: "/bin/server".to_owned(),
        threads: 4,
        thread_time_ns: lived_ns,
        locks,
        ..Snapshot::default()
    }
}

fn report(
    snapshots: Vec<Snapshot>,
    sampled: Option<Outcome>,
    futexes: Option<crate::attach::Events>,
) -> Report {
    let own = Choice::parse(LockName::Glibc.name()).expect("it is one");
    let about = About {
        command: vec!["server".to_owned()],
        lock: own,
        rwlocks: RwLocks::of(own, None),
        wall_ns: 1000 * MS,
        ending: STILL_RUNNING.to_owned(),
        now_ns: 1000 * MS,
        delayed: false,
        futexes,
        compare: None,
        busy: None,
        way: None,
        beside_library: false,
        beside: None,
    };
    let figures = Figures::seen(snapshots);
    Report::new(about, &[], &figures, sampled, Wanted::default()).expect("nothing is written")
}

/// The findings, and the whole text.
fn told(report: &Report) -> (Vec<Finding>, String) {
    let found = diagnosis::of(report);
    let style = Style { columns: 400, colour: false, shown: 10, events: false, length: Length::All };
    let text = text::text(report, &found, style);
    (found, text)
}

#[test]
fn a_storm_is_told_from_a_thread_that_keeps_the_mutex() {
    // Waits, in vain, signals and broadcasts.
    for (waits, in_vain, signals, broadcasts, is_storm) in [
        // A queue whose producer wakes all for each item, often while nobody waits.
        (22_834, 12_716, 0, 81_000, true),
        // All of eight are woken for one item, and keep the mutex.
        (320, 312, 0, 40, true),
        // One is woken for each item, and keeps the mutex until the next one comes.
        (160, 152, 160, 1, false),
        (160, 159, 0, 170, false),
        // Most found something to do.
        (1000, 100, 0, 4000, false),
        (50, 49, 0, 10, false),
    ] {
        let condition = LockStats {
            in_vain,
            signals,
            broadcasts,
            ..waited(0x1000, LockKind::Condition, waits, 500 * MS)
        };
        let (found, text) = told(&report(vec![process(4000 * MS, vec![condition])], None, None));
        let storm = found.iter().find(|finding| finding.kind == "storm");
        assert_eq!(storm.is_some(), is_storm, "{waits} {in_vain} {signals} {broadcasts}: {text}");
        if let Some(storm) = storm {
            assert!(storm.text.contains(&format!("{in_vain} of {waits} waits")), "{}", storm.text);
        }
    }
}

#[test]
fn rows_and_sentences_name_what_they_are_about() {
    let beyond = LockStats { address: 0, ..waited(0, LockKind::Overflow, 20, 200 * MS) };
    let joins = waited(0x3000, LockKind::Join, 3, 600 * MS);
    let joins = LockStats { address: 0, ..joins };
    let lock = waited(0x1000, LockKind::Mutex, 10, 900 * MS);
    let dropped =
        Snapshot { dropped_locks: 12, dropped_waits: 9, ..process(4000 * MS, vec![lock, beyond, joins]) };
    let (found, text) = told(&report(vec![dropped], None, None));
    assert_eq!(found.len(), 1, "nobody knows what to change about locks beyond the table: {text}");
    let lost = found.iter().find(|finding| finding.kind == "too_often").expect("it loses time");
    assert!(lost.text.contains("lost for the lock taken in 0x1001: "), "{}", lost.text);
    let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{text}"));
    assert!(row("thread joins").ends_with("thread joins  waiting in 0x3001"), "{text}");
    assert!(row(" 5.0 %").ends_with("locks beyond the table"), "{text}");
    assert!(
        text.contains("locks beyond the table: one row for all") && text.contains("12 locks, and 9 waits"),
        "{text}"
    );
}

/// What the sampler knows of a process that sleeps in this, of which the library has counted nothing.
fn asleep(what: Sleep, ns: u64) -> Outcome {
    let asleep = [(what, Estimate { ns, samples: 100 })].into();
    let times = Times { lived_ns: 10_000 * MS, running_ns: 10_000 * MS - ns, asleep, ..Times::default() };
    let process =
        Process { name: "server".into(), measured: true, times: times.clone(), ..Process::default() };
    Outcome { total: times, processes: vec![process], ..Outcome::default() }
}

#[test]
fn sleeps_that_nobody_counts_come_first_with_the_command_that_shows_them() {
    for what in [Sleep::Futex, Sleep::Call("futex".to_owned())] {
        let (found, _) = told(&report(Vec::new(), Some(asleep(what, 6000 * MS)), None));
        assert_eq!(found[0].kind, "unseen");
        assert!((found[0].share - 0.6).abs() < 1e-9);
        for part in ["threads of server slept 6.00 s", "sudo poundlock stat --futex -- server"] {
            assert!(found[0].text.contains(part), "{part:?} is not in {}", found[0].text);
        }
    }
    for (what, ns) in [(Sleep::Futex, 300 * MS), (Sleep::Call("read".to_owned()), 6000 * MS)] {
        let (found, _) = told(&report(Vec::new(), Some(asleep(what, ns)), None));
        assert!(found.iter().all(|finding| finding.kind != "unseen"));
    }
}

#[test]
fn what_is_seen_beside_the_library_has_a_share_of_its_own_and_comes_first() {
    let counted = vec![waited(0x1000, LockKind::Mutex, 10, 10 * MS)];
    let seen = vec![waited(0x2000, LockKind::Mutex, 10, 600 * MS)];
    let mut whole = report(vec![process(10_000 * MS, counted)], Some(asleep(Sleep::Futex, 6000 * MS)), None);
    let mut view = report(vec![process(1000 * MS, seen)], None, Some(crate::attach::Events::default()));
    (view.about.way, view.about.beside_library) = (Some("Seen from outside".to_owned()), true);
    whole.beside = Some(Box::new(view));
    let (found, text) = told(&whole);
    assert_eq!(found.iter().map(|finding| finding.kind).collect::<Vec<_>>(), ["slept"]);
    assert!((found[0].share - 0.6).abs() < 1e-9, "{}", found[0].share);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in {text}"));
    assert!(
        at("Waiting for pthread locks took 10.0 ms")
            < at("Sleeping for other locks, seen from outside, took 600 ms")
    );
    assert!(at("took 600 ms: 60.0 %") < at("\n* 60.0 % of the time threads slept for"), "{text}");
    assert!(at("\n* ") < at("\nSeen from outside\n"), "{text}");

    // The page has the same sentences and tables, in this order.
    let page = page::html(&whole, &found);
    let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("no {part:?} in {page}"));
    assert!(
        at("Waiting for pthread locks took 10.0 ms")
            < at("Sleeping for other locks, seen from outside, took")
    );
    assert!(at(">Locks</h2>") < at(">Seen from outside</p>"), "{page}");
    let table = &page[at(">Locks, seen from outside</h2>")..];
    assert!(table.contains("<td data-label=\"wait\">600 ms</td>"), "{table}");
}

/// A generator that is the same for a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end.max(1)
    }
}

/// What was recorded in a second of a process, and what the sampler saw of it, if it looked.
pub(crate) struct Run {
    pub(crate) snapshot: Snapshot,
    pub(crate) sampled: Option<Outcome>,
}

/// How long a [`Run`] takes, from 0 on.
pub(crate) const RUN_NS: u64 = 1000 * MS;

const KINDS: [LockKind; 9] = [
    LockKind::Mutex,
    LockKind::Spinlock,
    LockKind::RwReaders,
    LockKind::RwWriters,
    LockKind::Condition,
    LockKind::Semaphore,
    LockKind::Barrier,
    LockKind::Join,
    LockKind::Futex,
];

/// A run of a few threads that wait for locks and for other things, some of them all the time. What looks say
/// is off by as much as may be: they say too much idleness, or see a part of the run only.
pub(crate) fn random_run(seed: u64) -> Run {
    let mut random = Random(seed);
    let mut by_lock: BTreeMap<u64, u64> = BTreeMap::new();
    let locks = 1 + random.below(6);
    let mut records = Vec::new();
    let (mut times, mut lived_ns) = (Times { ready_ns: Some(0), ..Times::default() }, 0);
    for tid in 1..=1 + random.below(6) {
        let started_ns = random.below(RUN_NS / 2);
        let lived = RUN_NS - started_ns;
        lived_ns += lived;
        // Looks may have seen a part of it only.
        let seen = |ns: u64| if (seed + tid).is_multiple_of(8) { ns / 3 } else { ns };
        let mut left = lived;
        let mut record = ThreadStats {
            record: tid as u32,
            tid: tid as u32,
            lives: true,
            started_ns,
            ..ThreadStats::default()
        };
        for _ in 0..random.below(5) {
            let (lock, ns) = (random.below(locks), random.below(left));
            left -= ns;
            *by_lock.entry(lock).or_default() += ns;
            let kind = KINDS[((seed + lock) % 9) as usize];
            record.contended += 1;
            record.wait_ns += ns;
            if kind.is_acquired() {
                record.lock_waits += 1;
                record.lock_wait_ns += ns;
            }
            let what = match kind {
                LockKind::Condition => Sleep::Condition,
                LockKind::Semaphore => Sleep::Semaphore,
                LockKind::Barrier => Sleep::Barrier,
                LockKind::Join => Sleep::Join,
                LockKind::Futex => Sleep::Futex,
                _ => Sleep::Lock,
            };
            let to = if random.below(3) == 0 { &mut times.idle } else { &mut times.asleep };
            let sum: &mut Estimate = to.entry(what).or_default();
            (sum.ns, sum.samples) = (sum.ns + seen(ns), sum.samples + 9);
        }
        times.running_ns += seen(left);
        times.lived_ns += seen(lived);
        records.push(record);
    }
    let lock = |(&lock, &ns): (&u64, &u64)| {
        let kind = KINDS[((seed + lock) % 9) as usize];
        let address = 0x1000 * (lock + 1);
        let writers = if kind == LockKind::RwWriters { LockKind::WRITERS as u64 } else { 0 };
        waited(address + writers, kind, 1 + ns % 7, ns)
    };
    let locks: Vec<LockStats> = by_lock.iter().map(lock).collect();
    let snapshot = Snapshot { records, ..process(lived_ns, locks) };
    let other = Process {
        pid: 8,
        times: Times { lived_ns, running_ns: lived_ns, ..Times::default() },
        ..Process::default()
    };
    let of_it = Process { pid: 7, times: times.clone(), ..Process::default() };
    let outcome = Outcome { looks: 100, total: times, processes: vec![of_it, other], ..Outcome::default() };
    Run { snapshot, sampled: (!seed.is_multiple_of(4)).then_some(outcome) }
}

/// All forms of a report.
pub(crate) struct Forms {
    pub(crate) text: String,
    pub(crate) page: String,
    pub(crate) json: serde_json::Value,
    /// What was lost, and what of it for each class of locks, in words.
    pub(crate) lost: String,
    pub(crate) shares: Vec<String>,
}

pub(crate) fn forms(run: &Run, by_calls: bool) -> Forms {
    let events = by_calls.then(crate::attach::Events::default);
    let report = report(vec![run.snapshot.clone()], run.sampled.clone(), events);
    let (found, text) = told(&report);
    let mut written = Vec::new();
    json::write(&report, &found, false, &mut written).expect("memory");
    let percent = |class| report.share(class).map(text::percent);
    Forms {
        text,
        page: page::html(&report, &found),
        json: serde_json::from_slice(&written).expect("JSON"),
        lost: text::percent(report.time.lost()),
        shares: report.classes.iter().filter_map(percent).collect(),
    }
}

/// The numbers before a per cent sign.
pub(crate) fn percentages(text: &str) -> Vec<f64> {
    let number = |before: &str| -> Option<f64> {
        let from =
            before.trim_end().rfind(|c: char| !(c.is_ascii_digit() || c == '.')).map_or(0, |at| at + 1);
        before.trim_end()[from..].parse().ok()
    };
    let parts: Vec<&str> = text.split('%').collect();
    parts[..parts.len() - 1].iter().filter_map(|before| number(before)).collect()
}

#[test]
fn every_form_of_a_report_tells_the_same_shares_and_none_is_above_the_whole() {
    for seed in 0..400 {
        let run = random_run(seed);
        let (own, by_calls) = (forms(&run, false), forms(&run, true));
        assert_eq!((&own.lost, &own.shares), (&by_calls.lost, &by_calls.shares), "seed {seed}");
        for form in [&own, &by_calls] {
            let about = || format!("seed {seed}: {:#}\n{}", form.json, form.text);
            for text in [&form.text, &form.page] {
                assert!(percentages(text).iter().all(|&percent| percent <= 100.0), "{}", about());
            }
            let first = format!("{} of the time in which ", form.lost);
            if !form.shares.is_empty() {
                assert!(form.text.contains(&first) && form.page.contains(&first), "{}", about());
            }
            assert_eq!(text::percent(form.json["share"].as_f64().expect("a number")), form.lost);
            let classes = form.json["classes"].as_array().expect("a list");
            let shares: Vec<f64> = classes.iter().filter_map(|class| class["share"].as_f64()).collect();
            assert!(shares.iter().sum::<f64>() <= 1.0 + 1e-9, "{}", about());
            let shares: Vec<String> = shares.into_iter().map(text::percent).collect();
            assert_eq!(shares, form.shares, "{}", about());
            let cells = form.page.split("data-label=\"lost\">").skip(1);
            let cell = |cell: &str| cell.split('<').next().unwrap_or_default().replace("&lt;", "<");
            let cells: Vec<String> = cells.map(cell).collect();
            assert_eq!(cells, form.shares, "{}", about());
            let rows: Vec<&str> = form.text.lines().filter(|line| line.contains("  taken in 0x")).collect();
            for (row, share) in rows.iter().zip(&form.shares) {
                assert!(row.trim_start().starts_with(&**share), "{row}: {share}\n{}", about());
            }
        }
    }
}
