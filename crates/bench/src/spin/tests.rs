use super::*;
use crate::report::{Report, text};

fn sample(throughput: f64, jain: f64) -> Option<Sample> {
    Some(Sample {
        acquisitions: 100.0,
        throughput,
        jain,
        unserved: 0.0,
        cpu_ns: 1.0,
        voluntary: 0.0,
        involuntary: 0.0,
        others: None,
    })
}

fn gaps(events: u64) -> Gaps {
    let durations = probe::Durations {
        count: 10,
        p50_ns: 100.0,
        p99_ns: 200.0,
        p999_ns: 300.0,
        max_ns: 2e6,
        long_share: 0.25,
    };
    let mut all = vec![0; Event::ALL.len()];
    all[Event::PendingHit as usize] = events;
    Gaps { free: durations, held: durations, events: all }
}

/// Figures of three rounds, the second at half speed, made from throughputs and times.
fn made_up(throughput: fn(Contender, Point) -> f64, ns: fn(Contender) -> f64, cpus: usize) -> Figures {
    let options = Options::default();
    let locks = Contender::all();
    let mut solos = solos(&locks);
    for (lock, samples) in solos.iter_mut().flat_map(|solo| &mut solo.locks) {
        *samples = vec![Some(ns(*lock)), Some(2.0 * ns(*lock)), Some(ns(*lock))];
    }
    let mut measured = Vec::new();
    for point in points(&options, cpus) {
        for &lock in locks.iter().filter(|&&lock| point.scene.admits(lock)) {
            let rate = throughput(lock, point);
            let samples = [1.0, 0.5, 1.0].map(|speed| sample(rate * speed, 0.99)).to_vec();
            let gaps = if point.scene == Scene::Costs { vec![gaps(50), gaps(50), gaps(50)] } else { vec![] };
            measured.push(Measured { point, lock, samples, gaps });
        }
    }
    let calibration = Calibration { ns_per_step: 1.0 };
    let mut figures = Figures {
        machine: Machine::describe("poundlock bench spin"),
        options,
        cpus,
        calibration,
        calibration_after: calibration,
        alone: alone(&solos),
        pair: rows(&measured, Scene::Pair),
        crowd: rows(&measured, Scene::Crowd),
        costs: costs(&measured),
        targets: Vec::new(),
    };
    figures.targets = report::targets(&figures);
    figures
}

fn throughput(lock: Contender, point: Point) -> f64 {
    match (point.scene, lock) {
        (Scene::Pair, Contender::NATIVE) => 94.0,
        (Scene::Pair, Contender::Ticket) => 100.0,
        (Scene::Pair, _) => 90.0,
        (_, Contender::PARAVIRTUAL) if point.threads == 2 => 200.0,
        (_, Contender::PARAVIRTUAL) => 170.0,
        (_, Contender::Glibc) => 180.0,
        _ => 1.0,
    }
}

fn ns(lock: Contender) -> f64 {
    match lock {
        Contender::Bare => 10.0,
        Contender::PthreadSpin => 12.0,
        Contender::NATIVE => 11.0,
        Contender::Preloaded(_) => 13.2,
        _ => 12.6,
    }
}

#[track_caller]
fn result(figures: &Figures, target: &str, lock: Contender) -> (f64, bool) {
    let target = figures.targets.iter().find(|found| found.figure.starts_with(target));
    let target = target.unwrap_or_else(|| panic!("no such target in {:?}", figures.targets));
    let result = target.results.iter().find(|result| result.lock == lock.name());
    let result = result.unwrap_or_else(|| panic!("{lock} is not in {target:?}"));
    ((result.value * 1000.0).round() / 1000.0, result.reached)
}

#[test]
fn targets_follow_from_the_rows() {
    let figures = made_up(throughput, ns, 2);
    let of = |target: &str, lock| result(&figures, target, lock);
    assert_eq!(of("one thread: time of a bare", Contender::NATIVE), (1.1, true));
    assert_eq!(of("one thread: time of pthread_spin", Contender::NATIVE), (0.917, true));
    assert_eq!(of("one thread: time of pthread_spin", Contender::PARAVIRTUAL), (1.05, true));
    assert_eq!(of("one thread, call for call", Contender::Preloaded(Kind::Virtual)), (1.1, false));
    for us in [0.0, 0.1, 0.25, 0.5, 1.0, 2.0] {
        let point = format!("2 threads, section {us} us, think 0.25 us: ");
        assert_eq!(of(&format!("{point}best"), Contender::NATIVE), (0.94, false));
        assert_eq!(of(&format!("{point}Jain"), Contender::NATIVE), (0.99, true));
    }
    for threads in [4, 16, 64, 250] {
        let own = format!("{threads} threads: throughput of its own");
        assert_eq!(of(&own, Contender::PARAVIRTUAL), (0.85, true));
        assert_eq!(of(&own, Contender::Preloaded(Kind::Paravirtual)), (1.0, true));
        let glibc = format!("{threads} threads: throughput of glibc");
        assert_eq!(of(&glibc, Contender::PARAVIRTUAL), (0.944, false));
    }
}

#[test]
fn the_best_is_the_hardest_to_reach() {
    let figures = made_up(throughput, ns, 2);
    let row = figures.pair.iter().find(|row| row.lock == Contender::NATIVE).unwrap();
    assert_eq!(row.of_best(), row.of_ticket);
    assert!(row.of_pthread_spin.unwrap().median > 1.0 && row.of_mcs.unwrap().median > 1.0);
}

#[test]
fn with_one_cpu_there_is_no_pair_and_with_many_no_target_for_a_crowd() {
    let figures = made_up(throughput, ns, 1);
    assert!(figures.pair.is_empty());
    assert!(figures.targets.iter().all(|target| target.figure.starts_with("one thread")));
    let figures = made_up(throughput, ns, 8);
    assert!(!figures.crowd.is_empty());
    assert!(!figures.targets.iter().any(|target| target.figure.starts_with("64 threads")));
}

#[test]
fn what_a_hand_over_costs_is_told_in_figures_for_each_acquisition() {
    let figures = made_up(throughput, ns, 2);
    let cost = figures.costs.iter().find(|cost| cost.lock == Contender::PARAVIRTUAL).unwrap();
    assert_eq!(cost.free.long_share.unwrap().median, 0.25);
    assert_eq!(cost.events.len(), 1);
    assert_eq!((cost.events[0].0, cost.events[0].1.median), (Event::PendingHit.name(), 0.5));
    let text = text(&figures);
    assert!(text.contains("What a hand-over costs") && text.contains("pending hits"), "{text}");
    assert_eq!(figures.tables().len(), 5);
}

#[test]
fn the_preloaded_are_compared_within_their_own_process() {
    let all = solos(&Contender::all());
    assert_eq!(all.len(), 1 + Kind::ALL.len());
    for solo in &all[1..] {
        assert_eq!(solo.locks.len(), 3);
        assert_eq!(solo.locks[2].0.preloaded(), solo.library);
    }
    let rows = made_up(throughput, ns, 2).alone;
    assert_eq!(rows.len(), Contender::all().len());
    let preloaded = rows.iter().find(|row| row.lock.preloaded().is_some()).unwrap();
    let ratio = preloaded.of_pthread_spin.unwrap().median;
    assert!((ratio - 1.1).abs() < 1e-9, "{ratio}");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |options: Options| options.check().unwrap_err().to_string();
    assert!(refused(Options { rounds: 0, ..Options::default() }).contains("round"));
    assert!(refused(Options { threads: vec![4, 1], ..Options::default() }).contains("--threads"));
    assert!(refused(Options { threads: vec![], ..Options::default() }).contains("--threads"));
    assert!(refused(Options { seconds: f64::NAN, ..Options::default() }).contains("--seconds"));
    assert!(refused(Options { critical_us: vec![0.0, -1.0], ..Options::default() }).contains("--critical"));
    assert!(refused(Options { critical_us: vec![], ..Options::default() }).contains("--critical"));
    assert!(refused(Options { think_us: f64::INFINITY, ..Options::default() }).contains("--think"));
    assert!(refused(Options { crowd_think_us: -1.0, ..Options::default() }).contains("--crowd-think"));
    Options::default().check().unwrap();
}
