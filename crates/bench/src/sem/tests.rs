use super::*;
use crate::report::{Report, text};

fn round(rate: f64, held: Option<Held>) -> Option<Round> {
    let burns = sem::Burns {
        elapsed_ns: 1_000_000_000,
        main: 10,
        idle: 1,
        workers: vec![rate as u64 / 2 - 1, rate as u64 / 2 + 1],
        cpu_ns: 2_000_000_000,
        voluntary_switches: 1,
        involuntary_switches: 0,
        others: None,
        held,
    };
    Round::of(&burns, 2)
}

fn held(contended: u64, spun_ns: u64) -> Held {
    Held { lifetime_ns: 1_000_000_000, free: 1000 - contended, contended, spun_ns, slept: 0 }
}

/// Burns a second.
fn rate(mechanism: Mechanism) -> f64 {
    match mechanism {
        Mechanism::Kernel => 1000.0,
        Mechanism::Before => 600.0,
        Mechanism::After => 1200.0,
        Mechanism::SharedLine => 900.0,
        _ => 500.0,
    }
}

/// Nanoseconds of a call.
fn call(mechanism: Mechanism, operation: Operation) -> f64 {
    match (operation, mechanism) {
        (Operation::Bare, _) => 5.0,
        (_, Mechanism::Kernel) => 400.0,
        (_, Mechanism::After) => 50.0,
        _ => 100.0,
    }
}

/// Nanoseconds of a wake-up: linear, and for `before` square where ten are woken.
fn wake_up(mechanism: Mechanism, sleep: Sleep, sleepers: usize) -> f64 {
    match (sleep, mechanism) {
        (Sleep::Own, _) => 1000.0,
        (Sleep::Ten, Mechanism::Before) => (sleepers * sleepers) as f64,
        _ => sleepers as f64 * 10.0,
    }
}

fn options() -> Options {
    Options { bind: true, ..Options::default() }
}

/// Figures of three rounds, the second at half speed.
fn made_up(options: &Options, cpus: usize) -> Figures {
    let measured: Vec<Measured> = points(options, cpus)
        .into_iter()
        .flat_map(|point| Mechanism::ALL.into_iter().map(move |mechanism| (point, mechanism)))
        .filter(|&(point, mechanism)| point.admits(mechanism, options))
        .map(|(point, mechanism)| {
            let mut one = Measured::new(point, mechanism);
            for slow in [1.0, 2.0, 1.0] {
                match point {
                    Point::Burns => {
                        let held = match mechanism {
                            Mechanism::Before => Some(held(910, 940_000_000)),
                            _ if mechanism.is_ours() => Some(held(50, 20_000_000)),
                            _ => None,
                        };
                        one.burns.push(round(rate(mechanism) / slow, held));
                    }
                    Point::Alone => {
                        let calls = Operation::ALL.map(|what| (what, call(mechanism, what) * slow));
                        one.alone.push(calls.to_vec());
                    }
                    Point::Pair => one.pairs.push(sem::Pair {
                        elapsed_ns: 1_000_000,
                        calls: [rate(mechanism) as u64, rate(mechanism) as u64],
                        held: mechanism.is_ours().then(|| held(100, 1)),
                    }),
                    Point::Crowd(sleep) => {
                        let cost = |&number: &usize| (number, wake_up(mechanism, sleep, number) * slow);
                        one.crowds.push(options.crowds().iter().map(cost).collect());
                    }
                }
            }
            one
        })
        .collect();
    Figures::of(Machine::describe("poundlock bench sembench"), options, cpus, &measured)
}

fn result(figures: &Figures, figure: &str, mechanism: &str) -> (f64, bool) {
    let target = figures.targets.iter().find(|target| target.figure.contains(figure));
    let target = target.unwrap_or_else(|| panic!("no {figure}"));
    let result = target.results.iter().find(|result| result.lock == mechanism);
    let result = result.unwrap_or_else(|| panic!("no {mechanism} in {target:?}"));
    ((result.value * 1e6).round() / 1e6, result.verdict == crate::report::Verdict::Reached)
}

#[test]
fn targets_follow_from_the_rows() {
    let figures = made_up(&options(), 2);
    assert_eq!(result(&figures, "times the kernel's rate", "after"), (8.0, true));
    assert_eq!(result(&figures, "times the kernel's rate", "before"), (4.0, false));
    assert_eq!(result(&figures, "burns a second", "after"), (1.2, true));
    assert_eq!(result(&figures, "burns a second", "shared-line"), (0.9, false));
    assert_eq!(result(&figures, "spinning", "after"), (1.0, true));
    assert_eq!(result(&figures, "spinning", "before"), (47.0, false));
    assert_eq!(result(&figures, "contended", "after"), (5.0, true));
    assert_eq!(result(&figures, "contended", "before"), (91.0, false));
    assert_eq!(result(&figures, "one operation each", "after"), (1.0, true));
    assert_eq!(result(&figures, "two operations each, one", "before"), (2.0, true));
    assert_eq!(result(&figures, "the ten that came last", "after"), (2.0, true));
    assert_eq!(result(&figures, "the ten that came last", "before"), (4.0, false));
}

#[test]
fn targets_of_the_published_run_need_its_options() {
    let others = [
        Options { bind: false, ..options() },
        Options { threads: 249, ..options() },
        Options { wake: 63, ..options() },
    ];
    for options in others {
        let figures = made_up(&options, 2);
        assert!(
            !figures.targets.iter().any(|target| target.figure.contains("burns a second")),
            "{options:?}"
        );
        assert!(figures.targets.iter().any(|target| target.figure.contains("kernel's rate")), "{options:?}");
    }
}

#[test]
fn growth_is_that_of_a_doubling_whatever_the_steps() {
    let figures = made_up(&Options { sleepers: vec![160, 10, 40, 160], ..options() }, 2);
    let growths: Vec<_> = figures
        .crowds
        .iter()
        .filter(|cost| cost.mechanism == Mechanism::After && cost.sleep == Sleep::Ten)
        .map(|cost| (cost.sleepers, cost.growth.map(|growth| (growth.median * 1e9).round() / 1e9)))
        .collect();
    assert_eq!(growths, [(10, None), (40, Some(2.0)), (160, Some(2.0))]);
}

#[test]
fn a_lone_cpu_has_no_pairs_and_no_sleepers_no_crowds() {
    let figures = made_up(&Options { sleepers: vec![], ..options() }, 1);
    assert!(figures.pairs.is_empty() && figures.crowds.is_empty());
    assert!(!figures.targets.iter().any(|target| target.figure.starts_with("sleepers")));
    assert_eq!(figures.plot().unwrap(), None);
    assert!(!text(&figures, true).contains("Two threads with a CPU and a semaphore each, in one array\n"));
}

#[test]
fn variants_that_differ_in_the_lock_only_have_crowds_if_they_are_named() {
    let has = |mechanisms: &[Mechanism]| {
        let figures = made_up(&Options { mechanisms: mechanisms.to_vec(), ..options() }, 2);
        figures.crowds.iter().any(|cost| cost.mechanism == Mechanism::Combining)
    };
    assert!(!has(&[]) && !has(&[Mechanism::After]));
    assert!(has(&[Mechanism::Combining]));
}

#[test]
fn what_is_not_known_of_the_kernel_is_a_dash() {
    let figures = made_up(&options(), 2);
    let tables = figures.tables();
    let table = tables.iter().find(|table| table.title.starts_with("Beside")).unwrap();
    let cell = |figure: &str, column: &str| {
        let row = table.rows.iter().find(|row| row[0] == figure).unwrap();
        row[table.headings.iter().position(|heading| heading == column).unwrap()].clone()
    };
    assert_eq!(cell("contended", "published, before"), "7801967");
    assert_eq!(cell("contended", "kernel"), "-");
    assert_eq!(cell("contended", "after"), "50");
    assert_eq!(cell("1/1000 cpu time", "published, after"), "11");
    assert_eq!(cell("1/1000 cpu time", "before"), "470");
    assert_eq!(cell("wait, avg", "after"), "400000");
    assert_eq!(cell("worker burns per second", "kernel"), "1000");
}

#[test]
fn the_listing_is_in_the_sources_words() {
    let listing = made_up(&options(), 2).listing();
    let before = "250 threads, waking 64 at a time\n\
                  using Poundlock's sem operations, before\n\
                  main thread burns: 10\n\
                  worker burn count total 600 min 299 max 301 avg 300\n\
                  run time 1.00 seconds 600 worker burns per second\n\
                  lifetime 1.00 seconds 1000000000 ns.\n\
                  free 90 contended 910\n\
                  wait 940000000 avg 1032967 1/1000 cpu time 470\n";
    assert!(listing.contains(before), "{listing}");
    let kernel = "using ipc sem operations\n\
                  main thread burns: 10\n\
                  worker burn count total 1000 min 499 max 501 avg 500\n\
                  run time 1.00 seconds 1000 worker burns per second\n\n";
    assert!(listing.contains(kernel), "{listing}");
}

#[test]
fn after_stands_beside_the_shared_line() {
    let figures = made_up(&options(), 2);
    let tables = figures.tables();
    let table = tables.iter().find(|table| table.title.starts_with("Does the lock's own")).unwrap();
    assert_eq!(table.rows[0][..4], ["burns/s", "1200", "900", "1.333"]);
    let one = table.rows.iter().find(|row| row[0] == "one thread, one operation, ns").unwrap();
    assert_eq!(one[1..4], ["50.0", "100.0", "0.500"]);
    let pair = table.rows.iter().find(|row| row[0] == "two threads, calls/s").unwrap();
    assert_eq!(pair[3], "1.333");
}

#[test]
fn everything_is_in_the_report_and_the_picture() {
    let figures = made_up(&options(), 2);
    let text = text(&figures, true);
    let titles =
        ["Threads that", "Beside", "One thread", "Two threads", "Does the lock's", "Sleepers", "Targets"];
    for title in titles {
        assert!(text.lines().any(|line| line.starts_with(title)), "no {title} in\n{text}");
    }
    let picture = figures.plot().unwrap().unwrap();
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"), "{picture}");
    for mechanism in Mechanism::ALL {
        assert!(text.contains(mechanism.name()), "no {mechanism} in\n{text}");
        let drawn = picture.lines().any(|line| line.trim() == mechanism.name());
        let measured = [Mechanism::Kernel, Mechanism::Before, Mechanism::After, Mechanism::Futex];
        assert_eq!(drawn, measured.contains(&mechanism), "{mechanism} in\n{picture}");
    }
    for sleep in Sleep::ALL {
        assert!(picture.contains(sleep.words()), "no {sleep:?} in\n{picture}");
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let refused = |options: Options| options.check().unwrap_err().to_string();
    assert!(refused(Options { rounds: 0, ..options() }).contains("round"));
    assert!(refused(Options { threads: 0, ..options() }).contains("-t"));
    assert!(refused(Options { wake: 0, ..options() }).contains("-w"));
    assert!(refused(Options { seconds: f64::INFINITY, ..options() }).contains("-r"));
    assert!(refused(Options { sleepers: vec![10, 9], ..options() }).contains("--sleepers"));
    options().check().unwrap();
    Options::short().check().unwrap();
}
