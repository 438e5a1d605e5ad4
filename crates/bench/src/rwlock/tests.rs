use super::*;
use crate::report::{Report, markdown, text};

fn named(name: &str) -> Contender {
    Contender::parse(name).unwrap()
}

fn sample(throughput: f64) -> Option<Sample> {
    Some(Sample {
        acquisitions: 100.0,
        throughput,
        jain: 0.99,
        unserved: 0.0,
        cpu_ns: 1.0,
        voluntary: 0.0,
        involuntary: 0.0,
        others: None,
    })
}

fn waits(max_ns: f64) -> Option<rwlock::Waits> {
    let mean_ns = 1000.0;
    Some(rwlock::Waits { count: 10, mean_ns, p50_ns: 900.0, p99_ns: 2000.0, p999_ns: 3000.0, max_ns })
}

/// Figures of three rounds, the second at half speed, made from throughputs and times.
fn made_up(throughput: fn(Contender, Point) -> f64, ns: fn(Contender, Side) -> f64, cpus: usize) -> Figures {
    let options = Options::default();
    let locks = Contender::all();
    let mut solos = solos(&locks);
    for ((lock, side), samples) in solos.iter_mut().flat_map(|solo| &mut solo.locks) {
        *samples = vec![Some(ns(*lock, *side)), Some(2.0 * ns(*lock, *side)), Some(ns(*lock, *side))];
    }
    let mut measured = Vec::new();
    for point in points(&options) {
        for &lock in locks.iter().filter(|lock| lock.waits()) {
            let rate = throughput(lock, point);
            measured.push(Measured {
                point,
                lock,
                samples: [1.0, 0.5, 1.0].map(|speed| sample(rate * speed)).to_vec(),
                readers: vec![waits(5000.0); 3],
                // One round had none.
                writers: vec![waits(9000.0), None, waits(if lock.is_ours() { 9000.0 } else { 90_000.0 })],
            });
        }
    }
    let calibration = Calibration { ns_per_step: 1.0 };
    let mut figures = Figures {
        machine: Machine::describe("poundlock bench rwlock"),
        options,
        cpus,
        absent: vec![Absent { lock: named("abseil"), why: "it is not installed".to_owned() }],
        calibration,
        calibration_after: calibration,
        alone: alone(&solos),
        rows: rows(&measured),
        targets: Vec::new(),
    };
    figures.targets = report::targets(&figures);
    figures
}

fn throughput(lock: Contender, point: Point) -> f64 {
    match lock {
        Contender::PHASE_FAIR => 99.0,
        Contender::Ours(_) => 101.0,
        _ if lock == named("nsync") => 100.0,
        // It is the best elsewhere.
        Contender::Std if point.threads == 2 => 1000.0,
        _ => 50.0,
    }
}

fn ns(lock: Contender, side: Side) -> f64 {
    let read = match lock {
        Contender::ParkingLot => 10.0,
        Contender::PHASE_FAIR => 11.0,
        Contender::Ours(_) => 12.0,
        Contender::Preloaded => 18.0,
        _ => 20.0,
    };
    if side == Side::Read { read } else { 100.0 }
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
    assert_eq!(of("one thread: time of parking_lot's", Contender::PHASE_FAIR), (1.1, true));
    assert_eq!(
        of("one thread: time of parking_lot's", Contender::Ours(Policy::WriterPreferring)),
        (1.2, false)
    );
    assert_eq!(of("one thread, call for call", Contender::Preloaded), (0.9, true));
    assert_eq!(of("16 threads, 1 % writers: throughput", Contender::PHASE_FAIR), (0.99, false));
    assert_eq!(
        of("16 threads, 1 % writers: throughput", Contender::Ours(Policy::ReaderPreferring)),
        (1.01, true)
    );
    assert_eq!(of("16 threads, 1 % writers: a writer's longest", Contender::PHASE_FAIR), (9.0, true));
    assert_eq!(figures.targets.len(), 4);
    // Of a crowd they are about 2 CPUs.
    assert_eq!(made_up(throughput, ns, 8).targets.len(), 2);
}

#[test]
fn the_best_is_the_hardest_to_reach() {
    let figures = made_up(throughput, ns, 2);
    let best = |threads| {
        let row = |row: &&Row| row.threads == threads && row.lock == Contender::PHASE_FAIR;
        figures.rows.iter().find(row).unwrap().of_best.unwrap().lock
    };
    assert_eq!((best(2), best(16)), (Contender::Std, named("nsync")));
}

#[test]
fn the_preloaded_is_compared_within_its_own_process() {
    let all = solos(&Contender::all());
    assert_eq!(all.len(), 2);
    assert!(all[0].locks.iter().all(|((lock, _), _)| *lock != Contender::Preloaded));
    assert!(all[1].preloaded && all[1].locks.len() == 8);
    assert_eq!(solos(&[Contender::Bare]).len(), 1);
    let rows = made_up(throughput, ns, 2).alone;
    assert_eq!(rows.len(), 2 * Contender::all().len());
    let reads = rows.iter().find(|row| row.lock == Contender::Preloaded && row.side == Side::Read).unwrap();
    assert_eq!(reads.of_glibc.unwrap().median, 0.9);
}

#[test]
fn the_report_shows_waits_and_who_is_left_out() {
    let figures = made_up(throughput, ns, 2);
    let row = figures.rows.iter().find(|row| row.lock == Contender::Std).unwrap();
    // Over the two rounds that had any.
    assert_eq!((row.writer_waits.max_of_mean.unwrap().n, row.reader_waits.max_of_mean.unwrap().n), (2, 3));
    assert_eq!(figures.tables().len(), 4);
    let text = text(&figures);
    assert!(text.contains("Left out: abseil (it is not installed)."), "{text}");
    assert!(text.contains("Waits of writers") && text.contains("Waits of readers"), "{text}");
    assert!(markdown(&figures).starts_with("## Readers-writer locks\n"));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |options: Options| options.check().unwrap_err().to_string();
    assert!(refused(Options { rounds: 0, ..Options::default() }).contains("round"));
    assert!(refused(Options { threads: vec![16, 1], ..Options::default() }).contains("--threads"));
    assert!(refused(Options { threads: vec![], ..Options::default() }).contains("--threads"));
    assert!(refused(Options { writers: vec![], ..Options::default() }).contains("--writers"));
    assert!(refused(Options { writers: vec![1.0, 101.0], ..Options::default() }).contains("--writers"));
    assert!(refused(Options { writers: vec![f64::NAN], ..Options::default() }).contains("--writers"));
    assert!(refused(Options { seconds: 0.0, ..Options::default() }).contains("--seconds"));
    assert!(refused(Options { read_us: -1.0, ..Options::default() }).contains("--read"));
    assert!(refused(Options { write_us: f64::INFINITY, ..Options::default() }).contains("--write"));
    assert!(refused(Options { think_us: 1e7, ..Options::default() }).contains("--think"));
    Options::default().check().unwrap();
}
