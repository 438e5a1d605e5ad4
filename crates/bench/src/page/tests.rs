use clap::ValueEnum;
use scraper::{ElementRef, Html, Selector};

use super::*;
use crate::grid::compare::{EMPTY, tests as made_up};
use crate::grid::result::{
    Absent, Directory, Floors, Kind, Outcome, Peer, Point, Run, Sample, SleepWake, Transfer,
};

const HOSTILE: &str = "<script>alert('x')</script>\"'&<u>";

fn run() -> Run {
    let mut points = Vec::new();
    for (critical, think) in [(0.0, 0.0), (0.0, 0.4), (2.0, 0.0), (2.0, 0.4)] {
        points.extend([1, 2, 64, 250].map(|threads| Point::new(Kind::Grid, threads, critical, think, 0.2)));
    }
    let kinds = Kind::value_variants().iter().skip(1);
    points.extend(kinds.map(|&kind| Point::new(kind, 8, 1.0, 2.0, 0.2)));
    let peers = [
        (EMPTY, false, false),
        ("glibc", false, false),
        ("ck-mcs", false, true),
        (HOSTILE, false, false),
        ("poundlock", true, false),
        ("baseline", true, false),
    ];
    let mut run = made_up::run(points);
    run.machine.optimised = true;
    run.machine.load_average = 0.0;
    run.peers = peers.map(|(name, ours, spins)| Peer { spins, ..made_up::peer(name, ours) }).to_vec();
    run.absent = vec![Absent { name: "nsync".into(), why: format!("apt-get install {HOSTILE}") }];
    run.ours = "poundlock".into();
    run
}

fn floors() -> Floors {
    let ns = |ns: f64| Summary::of([ns, ns * 1.1, ns * 1.2]).unwrap();
    Floors {
        bare_cas_ns: ns(10.0),
        bare_cas_store_ns: ns(6.0),
        bare_load_store_ns: ns(1.0),
        pause_ns: ns(10.0),
        line_transfer_ns: [(0, 1), (1, 0)].map(|(from, to)| Transfer { from, to, ns: ns(60.0) }).to_vec(),
        futex_sleep_wake_ns: SleepWake {
            same_cpu: ns(2000.0),
            other_cpu: Some(ns(5000.0)),
            nobody: ns(200.0),
            switch: ns(1000.0),
            turn_ns: 0.7,
            queues: ns(1500.0),
            other: None,
            preempts: ns(2000.0),
            idle: None,
        },
        driver_ns: ns(3.0),
        timing_ns: ns(20.0),
        interrupts: None,
    }
}

/// The same rate whatever the work, a second round at half speed, and a third as the first.
fn samples(run: &Run, rate: impl Fn(&Point, &str) -> f64) -> Vec<Sample> {
    let mut samples = Vec::new();
    for round in 0..run.rounds {
        for (index, point) in run.points.iter().enumerate() {
            for peer in &run.peers {
                let rate = rate(point, &peer.name) * if round == 1 { 0.5 } else { 1.0 };
                samples.push(made_up::sample(index, &peer.name, round, rate));
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
    let samples = samples(&run(), rate);
    Results::of(run(), Some(floors()), samples).unwrap()
}

/// The page, after a look at its form: no error of the parser of browsers, and nothing that asks a network.
#[track_caller]
fn parsed(results: &Results) -> Html {
    let page = html(results, true);
    let document = Html::parse_document(&page);
    assert_eq!(document.errors, Vec::<std::borrow::Cow<'static, str>>::new());
    assert!(!page.contains("NaN") && !page.contains("inf\u{a0}"), "a number that is none");
    for attribute in ["src", "srcset", "href", "xlink\\:href", "data", "action", "poster"] {
        for element in all(&document, &format!("[{attribute}]")) {
            let value = element.value().attr(&attribute.replace('\\', "")).unwrap();
            assert!(value.starts_with('#'), "{}", element.html());
        }
    }
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
    document
}

fn all<'a>(document: &'a Html, selector: &str) -> Vec<ElementRef<'a>> {
    document.select(&Selector::parse(selector).unwrap()).collect()
}

fn texts(document: &Html, selector: &str) -> Vec<String> {
    all(document, selector).into_iter().map(text).collect()
}

fn text(element: ElementRef) -> String {
    element.text().collect::<String>().replace('\u{a0}', " ")
}

#[track_caller]
fn part(document: &Html, id: &str) -> String {
    let sections = texts(document, &format!("section[aria-labelledby='{id}']"));
    assert_eq!(sections.len(), 1, "{id}");
    sections.concat()
}

#[test]
fn the_parser_finds_fault() {
    for wrong in ["<!DOCTYPE html><p></div>", "<title>x</title>", "<!DOCTYPE html><p a=1 a=2>"] {
        assert!(!Html::parse_document(wrong).errors.is_empty(), "{wrong}");
    }
}

#[test]
fn every_part_is_there_and_linked() {
    let document = parsed(&whole());
    let ids: Vec<&str> = all(&document, "[id]").iter().map(|element| element.value().id().unwrap()).collect();
    let different: std::collections::HashSet<_> = ids.iter().collect();
    assert_eq!(different.len(), ids.len(), "an id is there twice");
    let links = all(&document, "nav a");
    // All but failures, of which there are none.
    assert_eq!(links.len(), 11);
    for link in links {
        let id = link.value().attr("href").unwrap().strip_prefix('#').unwrap();
        assert!(ids.contains(&id), "{id}");
    }
    // Two sections and two think times, for throughput, four quantiles, CPU time and two sorts of switches,
    // fairness.
    let plots = all(&document, "svg.plot");
    assert_eq!(plots.len(), 4 * (1 + 4 + 3 + 1));
    for reference in ["aria-labelledby", "aria-describedby"] {
        assert!(plots.iter().all(|plot| ids.contains(&plot.value().attr(reference).unwrap())));
    }
    assert_eq!(all(&document, "figure.bars").len(), 5);
    assert!(all(&document, ".notice").is_empty(), "nothing is missing");
    // The question that people ask is answered first.
    let lead = texts(&document, "p.lead").concat();
    assert!(lead.contains("poundlock makes 2.00 (2.00..2.00) times the acquisitions of glibc"), "{lead}");
    // The driver's share is told: 100 M/s of empty functions are 10 ns of each lock's.
    let floors = part(&document, "floors");
    assert!(floors.contains("the driver") && floors.contains("500.0500.0..1000.0490.0"), "{floors}");
}

#[test]
fn names_are_words_whatever_they_contain() {
    let mut run = run();
    run.machine.cpu = HOSTILE.into();
    run.machine.command = HOSTILE.into();
    run.points[0].name = HOSTILE.into();
    run.peers[4].name = format!("{HOSTILE}2");
    run.ours = format!("{HOSTILE}2");
    let mut samples = samples(&run, rate);
    samples[0].outcome = Outcome::Failed(HOSTILE.into());
    let document = parsed(&Results::of(run, None, samples).unwrap());
    assert_eq!(all(&document, "script").len(), 1, "our own alone");
    assert_eq!(all(&document, "u").len(), 0);
    for id in ["each", "locks", "failures"] {
        assert!(part(&document, id).contains(HOSTILE), "{id}");
    }
    assert!(texts(&document, "h1")[0].contains(HOSTILE));
    assert!(texts(&document, ".chip").concat().contains(HOSTILE));
    // Who is shown depends on numbers alone.
    let class = |element: &ElementRef| element.value().attr("class").unwrap().contains('<');
    assert!(!all(&document, "[class]").iter().any(class));
}

#[test]
fn targets_are_shown_if_they_are_asked_for_and_points_that_fall_behind_are_marked() {
    let results = whole();
    assert!(!html(&results, false).contains("id=\"targets\""));
    let document = parsed(&results);
    // 2 M/s beside 1.6 M/s of the best, in every round.
    let targets = part(&document, "targets");
    assert!(
        targets.contains("geometric mean (0 of 16 miss it)at least 11.25 reached (1.25..1.25)"),
        "{targets}"
    );
    let cells = texts(&document, ".heat tbody td");
    assert!(cells.len() == 16 && cells.iter().all(|cell| cell.starts_with("1.25")), "{cells:?}");
    assert_eq!(all(&document, ".heat td.missed").len(), 0);

    let slow = |point: &Point, name: &str| {
        rate(point, name) * if name == "poundlock" && point.threads == 250 { 0.1 } else { 1.0 }
    };
    let samples = samples(&run(), slow);
    let document = parsed(&Results::of(run(), Some(floors()), samples).unwrap());
    let missed = all(&document, ".heat td.missed");
    assert_eq!(missed.len(), 4);
    assert!(missed.iter().all(|cell| cell.value().classes().any(|class| class == "h0")));
}

#[test]
fn the_numbers_of_a_plot_are_in_its_table_and_everybody_has_a_place() {
    let document = parsed(&whole());
    let figure = all(&document, "section[aria-labelledby='throughput'] figure")[0];
    let select = |selector: &str| figure.select(&Selector::parse(selector).unwrap()).collect::<Vec<_>>();
    let rows: Vec<String> = select("tbody tr").into_iter().map(text).collect();
    assert_eq!(rows.len(), 5, "who does nothing is no lock");
    assert!(rows[0].starts_with("poundlock2.00 M/s1.00 M/s–2.00 M/s"), "{rows:?}");
    assert_eq!(select("g.line").len(), 5);
    assert!(!select("g.line circle[fill=\"none\"]").is_empty(), "20 a second are far below the scale");
    let columns = select("svg")[0].value().attr("data-columns").unwrap();
    assert_eq!(columns.split(' ').count(), 4);
    let groups = texts(&document, ".who fieldset");
    let names = ["poundlock", "glibc", "ck-mcs", "baseline"];
    assert!(
        groups.len() == 4 && groups.iter().zip(names).all(|(group, name)| group.contains(name)),
        "{groups:?}"
    );
    assert!(!groups.concat().contains(EMPTY));
    assert_eq!(all(&document, ".chip input[checked]").len(), 4, "others of ours are not shown at first");
}

#[test]
fn a_run_that_is_not_complete_says_what_is_missing() {
    let planned = run().points.len() * run().peers.len();
    let mut samples = samples(&run(), rate);
    samples.truncate(planned + 7);
    samples[3].outcome = Outcome::Failed("it hangs".into());
    let document = parsed(&Results::of(run(), None, samples).unwrap());
    let notice = texts(&document, ".notice").concat();
    for told in [
        "not complete".to_owned(),
        format!("{} of {} ", planned + 7, planned * 3),
        format!("Round 2: 7 of {planned}"),
        "Round 3: nothing yet".to_owned(),
        "floors have not been measured".to_owned(),
        "1 measurement gave no figure".to_owned(),
    ] {
        assert!(notice.contains(&told), "{told}: {notice}");
    }
    assert!(!notice.contains("Round 1:") && !notice.contains("nobody has been measured"), "{notice}");
    assert!(part(&document, "failures").contains("it hangs"));

    let document = parsed(&Results::of(run(), None, Vec::new()).unwrap());
    let notice = texts(&document, ".notice").concat();
    assert!(notice.contains("21 points nobody has been measured at"), "{notice}");
    assert!(notice.contains("and 9 more"), "{notice}");
    assert!(part(&document, "throughput").contains("Nothing has been measured here yet"));
    assert_eq!(all(&document, "svg.plot").len(), 0);
}

#[test]
fn a_run_without_a_grid_or_of_nobody_who_gets_anything_done_is_a_page() {
    let mut run = run();
    parsed(&Results::of(run.clone(), Some(floors()), samples(&run, |_, _| 0.0)).unwrap());
    run.points.retain(|point| point.kind != Kind::Grid);
    let samples = samples(&run, rate);
    let document = parsed(&Results::of(run, Some(floors()), samples).unwrap());
    assert!(all(&document, "#throughput").is_empty());
    assert_eq!(all(&document, "figure.bars").len(), 5);
}

#[test]
fn a_directory_is_read_as_it_was_written() {
    let temporary = tempfile::tempdir().unwrap();
    let directory = Directory::at(temporary.path());
    directory.create(&run()).unwrap();
    directory.write("floors.json", &floors()).unwrap();
    let mut file = directory.append().unwrap();
    samples(&run(), rate).iter().for_each(|sample| file.push(sample).unwrap());
    let read = html(&Results::read(&directory).unwrap(), true);
    assert!(read == html(&whole(), true));

    let path = temporary.path().join("samples.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    for (from, to, said) in [
        ("\"point\":3,", "\"point\":300,", "point 300"),
        ("\"lock\":\"glibc\"", "\"lock\":\"gone\"", "'gone'"),
        ("\"round\":2", "\"round\":3", "round 3"),
    ] {
        assert!(whole.contains(from), "{from}");
        std::fs::write(&path, whole.replacen(from, to, 1)).unwrap();
        let error = Results::read(&directory).unwrap_err().to_string();
        assert!(error.contains(said) && !error.contains('\n'), "{error}");
    }
}
