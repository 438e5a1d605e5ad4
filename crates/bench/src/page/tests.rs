use std::fs;

use scraper::{ElementRef, Html, Selector};

use super::*;
use crate::grid::compare::EMPTY;
use crate::grid::result::{
    Absent, Directory, Floors, Kind, Measured, Outcome, Peer, Point, Run, Sample, SleepWake, Transfer, Wait,
};
use crate::machine::Machine;
use crate::work::Calibration;

const HOSTILE: &str = "<script>alert('x')</script>\"'&<u>";

fn peer(name: &str, ours: bool, spins: bool) -> Peer {
    Peer {
        name: name.into(),
        description: format!("what {name} is"),
        origin: "somewhere 1.2".into(),
        ours,
        spins,
    }
}

fn point(kind: Kind, threads: usize, critical_us: f64, think_us: f64) -> Point {
    Point {
        name: format!("{}: {threads} threads, section {critical_us} us, think {think_us} us", kind.name()),
        sleep_us: (kind == Kind::SleepingHolder).then_some(1000.0),
        ..Point::new(kind, threads, critical_us, think_us)
    }
}

fn run() -> Run {
    let mut points = Vec::new();
    for critical in [0.0, 2.0] {
        for think in [0.0, 0.4] {
            for threads in [1, 2, 64, 250] {
                points.push(point(Kind::Grid, threads, critical, think));
            }
        }
    }
    points.extend(Kind::ALL.into_iter().skip(1).map(|kind| point(kind, 8, 1.0, 2.0)));
    Run {
        version: 1,
        machine: Machine { optimised: true, ..Machine::describe("poundlock bench grid") },
        command: "poundlock bench grid".into(),
        started: 1_700_000_000,
        calibration: Calibration { ns_per_step: 1.5 },
        peers: vec![
            peer(EMPTY, false, false),
            peer("glibc", false, false),
            peer("ck-mcs", false, true),
            peer(HOSTILE, false, false),
            peer("poundlock", true, false),
            peer("baseline", true, false),
        ],
        absent: vec![Absent { name: "nsync".into(), why: format!("apt-get install {HOSTILE}") }],
        ours: "poundlock".into(),
        points,
        rounds: 3,
        seconds: 0.2,
        cpus: vec![0, 1],
        pinned: true,
    }
}

fn floors() -> Floors {
    let ns = |ns: f64| Summary::of([ns, ns * 1.1, ns * 1.2]).unwrap();
    let cpus = [0, 1, 2];
    let pairs = cpus.iter().flat_map(|&from| cpus.iter().map(move |&to| (from, to)));
    Floors {
        bare_cas_ns: ns(10.0),
        bare_cas_store_ns: ns(6.0),
        bare_load_store_ns: ns(1.0),
        line_transfer_ns: pairs
            .filter(|(from, to)| from != to)
            .map(|(from, to)| Transfer { from, to, ns: ns(60.0) })
            .collect(),
        futex_sleep_wake_ns: SleepWake { same_cpu: ns(2000.0), other_cpu: Some(ns(5000.0)) },
        driver_ns: ns(3.0),
        timing_ns: ns(20.0),
    }
}

fn measured(rate: f64) -> Measured {
    Measured {
        operations: (rate * 0.2) as u64,
        seconds: 0.2,
        cpu_ns: 400_000_000,
        involuntary: 10,
        voluntary: 20,
        jain: 0.95,
        unserved: 0,
        others: Some(0.02),
        wait: Wait { p50: 100, p99: 10_000, p999: 1_000_000, max: 90_000_000, count: 1000, mean: 500.0 },
    }
}

/// The same rate whatever the work, a second round at half speed, and a third as the first.
fn samples(run: &Run, rate: impl Fn(&Point, &str) -> f64) -> Vec<Sample> {
    let mut samples = Vec::new();
    for round in 0..run.rounds {
        for (index, point) in run.points.iter().enumerate() {
            for peer in &run.peers {
                let rate = rate(point, &peer.name) * if round == 1 { 0.5 } else { 1.0 };
                let outcome = Outcome::Measured(measured(rate));
                samples.push(Sample { point: index, lock: peer.name.clone(), round, outcome });
            }
        }
    }
    samples
}

fn rate(_: &Point, name: &str) -> f64 {
    match name {
        EMPTY => 100e6,
        "poundlock" => 2e6,
        HOSTILE => 1.6e6,
        "ck-mcs" => 20.0,
        _ => 1e6,
    }
}

fn whole() -> Results {
    let run = run();
    let samples = samples(&run, rate);
    Results::of(run, Some(floors()), samples).unwrap()
}

/// The page, after a look at its form: no error of the parser of browsers, and nothing that asks a network.
fn parsed(results: &Results) -> Html {
    let page = html(results);
    let document = Html::parse_document(&page);
    assert_eq!(document.errors, Vec::<std::borrow::Cow<'static, str>>::new());
    assert!(!page.contains("NaN") && !page.contains("inf\u{a0}"), "a number that is none");
    for attribute in ["src", "srcset", "href", "xlink:href", "data", "action", "poster"] {
        for element in all(&document, &format!("[{}]", attribute.replace(':', "\\:"))) {
            let value = element.value().attr(attribute).unwrap();
            assert!(value.starts_with('#'), "{}", element.html());
        }
    }
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
    document
}

fn all<'a>(document: &'a Html, selector: &str) -> Vec<ElementRef<'a>> {
    document.select(&Selector::parse(selector).unwrap()).collect()
}

fn text(element: ElementRef) -> String {
    element.text().collect::<String>().replace('\u{a0}', " ")
}

#[track_caller]
fn part(document: &Html, id: &str) -> String {
    let sections = all(document, &format!("section[aria-labelledby='{id}']"));
    assert_eq!(sections.len(), 1, "{id}");
    text(sections[0])
}

#[test]
fn the_parser_finds_fault() {
    for wrong in [
        "<!DOCTYPE html><title>x</title><p></div>",
        "<title>x</title>",
        "<!DOCTYPE html><title>x</title><p a=1 a=2>",
    ] {
        assert!(!Html::parse_document(wrong).errors.is_empty(), "{wrong}");
    }
}

#[test]
fn every_part_is_there_and_linked() {
    let document = parsed(&whole());
    let ids: Vec<&str> = all(&document, "[id]").iter().map(|element| element.value().id().unwrap()).collect();
    for (index, id) in ids.iter().enumerate() {
        assert!(!ids[..index].contains(id), "two elements are called {id}");
    }
    let links = all(&document, "nav a");
    assert_eq!(links.len(), 12);
    for link in links {
        let id = link.value().attr("href").unwrap().strip_prefix('#').unwrap();
        assert!(ids.contains(&id), "{id}");
    }
    // Two sections and two think times, for throughput, four quantiles, CPU time and two sorts of switches,
    // fairness.
    assert_eq!(all(&document, "svg.plot").len(), 4 * (1 + 4 + 3 + 1));
    for plot in all(&document, "svg.plot") {
        for reference in ["aria-labelledby", "aria-describedby"] {
            assert!(ids.contains(&plot.value().attr(reference).unwrap()));
        }
    }
    assert_eq!(all(&document, "figure.bars").len(), 5);
    assert!(all(&document, ".notice").is_empty(), "nothing is missing");
}

#[test]
fn names_are_words_whatever_they_contain() {
    let mut run = run();
    run.command = HOSTILE.into();
    run.machine.cpu = HOSTILE.into();
    run.machine.command = HOSTILE.into();
    run.points[0].name = HOSTILE.into();
    run.peers[4].name = format!("{HOSTILE}2");
    run.ours = format!("{HOSTILE}2");
    let mut samples = samples(&run, rate);
    samples[0].outcome = Outcome::Failed { failed: HOSTILE.into() };
    let document = parsed(&Results::of(run, None, samples).unwrap());
    assert_eq!(all(&document, "script").len(), 1, "our own alone");
    assert_eq!(all(&document, "u").len(), 0);
    for id in ["each", "locks", "failures"] {
        assert!(part(&document, id).contains(HOSTILE), "{id}");
    }
    assert!(text(all(&document, "h1")[0]).contains(HOSTILE));
    let chips: Vec<String> = all(&document, ".chip").into_iter().map(text).collect();
    assert!(chips.iter().any(|chip| chip.contains(HOSTILE)), "{chips:?}");
    // Who is shown depends on numbers alone.
    assert!(
        all(&document, "[class]").iter().all(|element| !element.value().attr("class").unwrap().contains('<'))
    );
}

#[test]
fn targets_are_shown_with_their_verdicts() {
    let results = whole();
    let document = parsed(&results);
    let rows: Vec<String> = all(&document, ".targets tbody tr").into_iter().map(text).collect();
    assert_eq!(rows.len(), results.targets().len());
    // 2 M/s beside 1.6 M/s of the best, in every round.
    assert!(
        rows[0].contains("geometric mean") && rows[0].contains("1.25") && rows[0].contains("✓ reached"),
        "{rows:?}"
    );
    let waits = rows.iter().find(|row| row.contains("99.9 %")).unwrap();
    assert!(waits.contains("1.00") && waits.contains("✓ reached") && waits.contains("0 of 4"), "{waits}");
    let cells: Vec<String> = all(&document, ".heat tbody td").into_iter().map(text).collect();
    assert_eq!(cells.len(), 16);
    assert!(cells.iter().all(|cell| cell.starts_with("1.25")), "{cells:?}");
    assert_eq!(all(&document, ".heat td.missed").len(), 0);
}

#[test]
fn a_point_that_falls_behind_is_marked() {
    let run = run();
    let slow = |point: &Point, name: &str| {
        rate(point, name) * if name == "poundlock" && point.threads == 250 { 0.1 } else { 1.0 }
    };
    let samples = samples(&run, slow);
    let document = parsed(&Results::of(run, Some(floors()), samples).unwrap());
    let missed = all(&document, ".heat td.missed");
    assert_eq!(missed.len(), 4);
    assert!(missed.iter().all(|cell| cell.value().classes().any(|class| class == "h0")));
    let rows: Vec<String> = all(&document, ".targets tbody tr").into_iter().map(text).collect();
    let many = rows.iter().find(|row| row.contains("250 threads, of that with 2")).unwrap();
    assert!(many.contains("0.10") && many.contains("✗ missed") && many.contains("4 of 4"), "{many}");
}

#[test]
fn the_numbers_of_a_plot_are_in_its_table() {
    let document = parsed(&whole());
    let figure = all(&document, "section[aria-labelledby='throughput'] figure")[0];
    let select = |selector: &str| figure.select(&Selector::parse(selector).unwrap()).collect::<Vec<_>>();
    let rows: Vec<String> = select("tbody tr").into_iter().map(text).collect();
    assert_eq!(rows.len(), 5, "who does nothing is no lock");
    assert!(rows[0].starts_with("poundlock2.00 M/s1.00 M/s–2.00 M/s"), "{rows:?}");
    assert_eq!(select("g.line").len(), 5);
    assert_eq!(select("path.beyond").len(), 1, "20 a second are far below the scale");
    let columns = select("svg")[0].value().attr("data-columns").unwrap();
    assert_eq!(columns.split(' ').count(), 4);
}

#[test]
fn spinning_peers_and_others_of_ours_have_their_place() {
    let document = parsed(&whole());
    let groups: Vec<String> = all(&document, ".who fieldset").into_iter().map(text).collect();
    assert_eq!(groups.len(), 4, "{groups:?}");
    assert!(
        groups[0].contains("poundlock") && groups[2].contains("ck-mcs") && groups[3].contains("baseline")
    );
    assert!(!groups.concat().contains(EMPTY));
    assert_eq!(all(&document, ".chip input[checked]").len(), 4, "others of ours are not shown at first");
}

#[test]
fn an_interrupted_run_says_what_is_missing() {
    let run = run();
    let planned = run.points.len() * run.peers.len();
    let samples: Vec<Sample> = samples(&run, rate).into_iter().take(planned + 7).collect();
    let results = Results::of(run, None, samples).unwrap();
    let document = parsed(&results);
    let notice = text(all(&document, ".notice")[0]);
    assert!(
        notice.contains("not complete") && notice.contains(&format!("{} of {} ", planned + 7, planned * 3)),
        "{notice}"
    );
    assert!(
        notice.contains(&format!("Round 2: 7 of {planned}")) && notice.contains("Round 3: nothing yet"),
        "{notice}"
    );
    assert!(notice.contains("floors have not been measured"), "{notice}");
    assert!(!notice.contains("Round 1:") && !notice.contains("nobody has been measured"), "{notice}");
}

#[test]
fn a_run_that_has_only_begun_is_a_page() {
    let document = parsed(&Results::of(run(), None, Vec::new()).unwrap());
    let notice = text(all(&document, ".notice")[0]);
    assert!(
        notice.contains("21 points nobody has been measured at") && notice.contains("and 9 more"),
        "{notice}"
    );
    assert!(part(&document, "throughput").contains("Nothing has been measured here yet"));
    assert_eq!(all(&document, "svg.plot").len(), 0);
}

#[test]
fn a_run_without_a_grid_is_a_page() {
    let mut run = run();
    run.points.retain(|point| point.kind != Kind::Grid);
    let samples = samples(&run, rate);
    let document = parsed(&Results::of(run, Some(floors()), samples).unwrap());
    assert!(all(&document, "#throughput").is_empty());
    assert_eq!(all(&document, "figure.bars").len(), 5);
    assert!(part(&document, "targets").contains("not measured"));
}

#[test]
fn nobody_who_gets_anything_done_is_a_page() {
    let run = run();
    let samples = samples(&run, |_, _| 0.0);
    parsed(&Results::of(run, Some(floors()), samples).unwrap());
}

#[test]
fn failures_are_listed_and_told_of_above() {
    let run = run();
    let mut samples = samples(&run, rate);
    samples[3].outcome = Outcome::Failed { failed: "it hangs".into() };
    let document = parsed(&Results::of(run, Some(floors()), samples).unwrap());
    assert!(text(all(&document, ".notice")[0]).contains("1 measurement gave no figure"));
    assert!(part(&document, "failures").contains("it hangs"));
}

#[test]
fn floors_and_the_drivers_share_are_told() {
    let floors = part(&parsed(&whole()), "floors");
    assert!(floors.contains("6.60 ns") && floors.contains("The driver"), "{floors}");
    // 100 M/s of empty functions: 10 ns of each lock's.
    assert!(floors.contains("Empty functions take 10.0 ns") && floors.contains("490 ns"), "{floors}");
}

#[test]
fn a_directory_is_read_as_it_was_written() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = Directory::at(temporary.path());
    let run = run();
    directory.create(&run).unwrap();
    directory.write_floors(&floors()).unwrap();
    let (_, mut file) = directory.append().unwrap();
    for sample in samples(&run, rate) {
        file.push(&sample).unwrap();
    }
    drop(file);
    assert_eq!(html(&Results::read(&directory).unwrap()), html(&whole()));

    let path = temporary.path().join("samples.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    for (from, to, said) in [
        ("\"point\":3,", "\"point\":300,", "point 300"),
        ("\"lock\":\"glibc\"", "\"lock\":\"gone\"", "'gone'"),
        ("\"round\":2", "\"round\":3", "round 3"),
        ("\"seconds\":0.2", "\"seconds\":0.0", "nonsense"),
    ] {
        assert!(whole.contains(from), "{from}");
        fs::write(&path, whole.replacen(from, to, 1)).unwrap();
        let error = Results::read(&directory).unwrap_err().to_string();
        assert!(error.contains(said) && !error.contains('\n'), "{error}");
    }
}
