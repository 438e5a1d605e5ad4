use super::*;
use crate::report::{Report, text};

fn sample(ns: f64) -> Option<Sample> {
    Some(Sample {
        acquisitions: 100.0,
        throughput: 1e9 / ns,
        jain: 0.9,
        unserved: 0.25,
        cpu_ns: 1.0,
        voluntary: 0.0,
        involuntary: 0.0,
        others: None,
    })
}

/// Figures of three rounds, the second at half speed, made from times.
fn made_up(ns: fn(Contender, Point) -> f64, cpus: usize) -> Figures {
    let options = Options::default();
    let measured: Vec<Measured> = points(&options, cpus)
        .into_iter()
        .flat_map(|point| Contender::all().into_iter().map(move |lock| (point, lock)))
        .filter(|&(point, lock)| point.admits(lock))
        .map(|(point, lock)| {
            let mut one = Measured::new(point, lock);
            let times = [1.0, 2.0, 1.0].map(|slow| ns(lock, point) * slow);
            for (_, rounds) in &mut one.alone {
                *rounds = times.map(Some).to_vec();
            }
            match point {
                Point::Alone => {}
                Point::Pass(_) => one.passes = times.map(|ns| (ns, ns / 4.0)).to_vec(),
                _ => one.samples = times.map(sample).to_vec(),
            }
            one
        })
        .collect();
    let calibration = Calibration { ns_per_step: 1.0 };
    Figures::of(Machine::describe("poundlock bench misc-mutex"), &options, cpus, [calibration; 2], &measured)
}

fn ns(lock: Contender, point: Point) -> f64 {
    match (point, lock) {
        (Point::Alone, Contender::Bare) => 10.0,
        (Point::Alone, Contender::HANDOFF) => 12.0,
        (Point::Alone, Contender::Recursive) => 14.0,
        (Point::Increment { threads: 2, critical_us: 0.0 }, Contender::HANDOFF_NONE) => 1100.0,
        (Point::Increment { threads: 2, .. }, Contender::HANDOFF) => 100.0,
        (Point::Increment { threads: 2, .. }, Contender::QSPIN) => 50.0,
        (Point::Increment { threads: 20, critical_us: 0.0 }, Contender::HANDOFF) => 180.0,
        (Point::Increment { threads: 20, .. }, Contender::HANDOFF) => 220.0,
        _ => 200.0,
    }
}

fn result(figures: &Figures, figure: &str, lock: &str) -> (f64, bool) {
    let target = figures.targets.iter().find(|target| target.figure.starts_with(figure));
    let target = target.unwrap_or_else(|| panic!("no {figure}"));
    let result = target.results.iter().find(|result| result.lock == lock);
    let result = result.unwrap_or_else(|| panic!("no {lock} in {target:?}"));
    ((result.value * 1e6).round() / 1e6, result.reached)
}

#[test]
fn targets_follow_from_the_rows() {
    let figures = made_up(ns, 2);
    assert_eq!(result(&figures, "one thread", "handoff"), (1.2, true));
    assert_eq!(result(&figures, "one thread", "handoff-recursive"), (1.4, false));
    let fast = "2 threads with a CPU each, incrementing: times as fast";
    assert_eq!(result(&figures, fast, "handoff"), (11.0, true));
    assert_eq!(result(&figures, fast, "handoff:competitive"), (5.5, false));
    let spinlock = "2 threads with a CPU each, incrementing: time of the queue spinlock";
    assert_eq!(result(&figures, spinlock, "handoff"), (2.0, false));
    assert_eq!(result(&figures, "20 threads, section 0 us", "handoff"), (0.9, true));
    assert_eq!(result(&figures, "20 threads, section 1 us", "handoff"), (1.1, false));
    // What the others are compared with is no contender for the target.
    assert!(figures.targets.iter().flat_map(|target| &target.results).all(|one| one.lock != "handoff:none"));
}

#[test]
fn targets_are_about_the_machines_that_they_name() {
    let about =
        |cpus| -> Vec<String> { made_up(ns, cpus).targets.into_iter().map(|target| target.figure).collect() };
    assert!(about(1).iter().all(|figure| figure.starts_with("one thread")));
    let eight = about(8);
    assert!(eight.iter().any(|figure| figure.starts_with("2 threads")));
    assert!(!eight.iter().any(|figure| figure.starts_with("20 threads")));
    assert!(made_up(ns, 1).passes.is_empty());
}

#[test]
fn points_are_two_one_for_each_cpu_and_what_is_asked_for() {
    let numbers = |cpus| -> Vec<(usize, f64)> {
        points(&Options::default(), cpus)
            .into_iter()
            .filter_map(|point| match point {
                Point::Increment { threads, critical_us } => Some((threads, critical_us)),
                _ => None,
            })
            .collect()
    };
    assert_eq!(numbers(2), [(2, 0.0), (4, 0.0), (20, 0.0), (2, 1.0), (4, 1.0), (20, 1.0)]);
    assert_eq!(numbers(8)[..4], [(2, 0.0), (4, 0.0), (8, 0.0), (20, 0.0)]);
    let rows = made_up(ns, 8).increments;
    assert!(rows.iter().all(|row| row.pinned == (row.threads <= 8)));
}

#[test]
fn policies_are_measured_against_the_best_at_each_point() {
    let figures = made_up(ns, 2);
    let tables = figures.tables();
    let table = tables.iter().find(|table| table.title.starts_with("Policies")).unwrap();
    let row = |policy: &str| table.rows.iter().find(|row| row[0] == policy).unwrap().clone();
    let none = row("handoff:none");
    assert_eq!(none[1], "1100 (11.00)");
    assert_eq!(none[none.len() - 2], "11.00");
    let ours = row("handoff");
    assert_eq!(ours[1], "100 (1.00)");
    assert_eq!(ours[ours.len() - 2], "1.10");
    assert_eq!(report::geometric_mean(&[2.0, 8.0]).map(|mean| mean.round()), Some(4.0));
    assert_eq!(report::geometric_mean(&[]), None);
}

#[test]
fn published_figures_stand_beside_ours_as_they_are_counted() {
    let figures = made_up(ns, 2);
    let tables = figures.tables();
    let table = tables.iter().find(|table| table.title.starts_with("Beside")).unwrap();
    assert_eq!(table.rows[0], ["2", "800", "33", "24.2", "2200", "200", "11.0"]);
    assert_eq!(table.rows[1][0], "4 (ours share the CPUs)");
}

#[test]
fn everything_is_in_the_report() {
    let figures = made_up(ns, 2);
    let text = text(&figures);
    for title in
        ["Bytes", "One thread", "The hand-off alone", "Incrementing threads", "Policies", "The checker"]
    {
        assert!(text.lines().any(|line| line.starts_with(title)), "no {title} in\n{text}");
    }
    for lock in Contender::all() {
        assert!(text.contains(lock.name()), "no {lock} in\n{text}");
    }
    let ratio = figures.passes.iter().find(|pass| pass.lock == Contender::Glibc).unwrap().of_glibc.unwrap();
    assert_eq!((ratio.min, ratio.max), (1.0, 1.0));
}

#[test]
fn sizes_are_those_of_the_types() {
    let sizes = sizes();
    let find = |name: &str| sizes.iter().find(|size| size.lock.starts_with(name)).unwrap();
    let handoff = find("handoff");
    assert!(handoff.recursive > Some(handoff.plain));
    assert_eq!(find("qspin").plain, 4);
    assert_eq!(find("glibc").plain, mem::size_of::<libc::pthread_mutex_t>());
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |options: Options| options.check().unwrap_err().to_string();
    assert!(refused(Options { rounds: 0, ..Options::default() }).contains("round"));
    assert!(refused(Options { threads: vec![4, 1], ..Options::default() }).contains("--threads"));
    assert!(refused(Options { seconds: f64::NAN, ..Options::default() }).contains("--seconds"));
    assert!(refused(Options { critical_us: vec![-1.0], ..Options::default() }).contains("--critical"));
    Options::default().check().unwrap();
}
