//! The figures as tables, as the source's program prints them, and what they are to reach.

use serde_json::{Value, json};

use super::{Mechanism, Options};
use crate::Summary;
use crate::plan::{Column, Row, Rows, Sample, table};
use crate::report::{Limit, Table, Target, median, spread};
use crate::worker::sem::{LOOK_EVERY, Operation, PAUSE, Sides, Sleep};

/// What the targets are about.
const TARGET_THREADS: usize = 250;
const TARGET_WAKE: usize = 64;
/// A linear pass takes twice as long for twice the sleepers; the caches may make it this much worse.
const GROWTH: f64 = 2.0 * 1.3;

/// `sembench -t 250 -w 64 -o 0 -r 30 -b` on a 4-core AMD Phenom. Wake-ups are of all threads, of the one with
/// the fewest and of the one with the most; times are in ticks of the time stamp counter, of which the last
/// line has thousandths of all CPUs' time. Each is in the source's words, with its key in the JSON, what it
/// was before the series and after it, and ours. From Manfred Spraul, "[RFC PATCH 0/3] ipc/sem.c:
/// Optimization for reducing spinlock contention", linux-kernel, 2010.
pub(super) const PUBLISHED: [(&str, &str, [u64; 2], &str); 13] = [
    ("main thread burns", "main_burns", [2_194_274, 112_890], "main_burns"),
    ("worker burns, total", "worker_burns", [6_352_691, 7_084_335], "worker_burns"),
    ("worker burns, min", "worker_min", [21_505, 27_869], "worker_min"),
    ("worker burns, max", "worker_max", [29_230, 28_769], "worker_max"),
    ("worker burns, avg", "worker_avg", [25_410, 28_337], "worker_avg"),
    ("run time, seconds", "seconds", [30, 30], "seconds"),
    ("worker burns per second", "burns_per_second", [211_756, 236_144], "burns_per_second"),
    ("lifetime", "lifetime_ticks", [58_573_142_769, 59_518_717_621], "held.lifetime_ns"),
    ("free", "free", [745_344, 6_704_845], "held.free"),
    ("contended", "contended", [7_801_967, 490_448], "held.contended"),
    ("wait", "wait_ticks", [110_278_262_115, 2_625_106_215], "held.spun_ns"),
    ("wait, avg", "wait_avg_ticks", [14_134, 5_352], "held.spun_avg_ns"),
    ("1/1000 cpu time", "permille", [470, 11], "spinning"),
];

/// What a wait of [`Sides`] may be of the kernel's, on average and at the longest.
const MEAN_OF_KERNEL: f64 = 1.2;
const LONGEST_OF_KERNEL: f64 = 2.0;

/// A mechanism's rounds, of which this is the one with the median rate.
fn typical(row: &Row) -> Option<&Sample> {
    let rate = row.get("burns_per_second")?;
    let rounds = row.rounds().iter().filter(|round| round.contains_key("burns_per_second"));
    let distance = |round: &&Sample| (round["burns_per_second"] - rate.median).abs();
    rounds.min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

/// A figure of a round as the source prints it: shares in thousandths, and seconds whole but for short runs.
fn shown(round: &Sample, name: &str) -> Option<String> {
    let value = *round.get(name)?;
    Some(match name {
        "spinning" => format!("{:.0}", value * 1000.0),
        "seconds" => seconds(value),
        _ => format!("{value:.0}"),
    })
}

fn seconds(seconds: f64) -> String {
    if seconds >= 10.0 { format!("{seconds:.0}") } else { format!("{seconds:.2}") }
}

/// The round with the median rate in the words of the source's program and of its patch that reports.
pub(super) fn listing(options: &Options, rows: &Rows) -> String {
    let runs = rows.of("burns").filter_map(|row| {
        let round = typical(row)?;
        let of = |name: &str| shown(round, name).unwrap_or_default();
        let using = Mechanism::ALL.into_iter().find(|one| one.name() == row.who)?.words();
        let mut out = format!(
            "{} threads, waking {} at a time\nusing {using}\nmain thread burns: {}\n\
             worker burn count total {} min {} max {} avg {}\nrun time {} seconds {} worker burns per \
             second\n",
            options.threads,
            options.wake,
            of("main_burns"),
            of("worker_burns"),
            of("worker_min"),
            of("worker_max"),
            of("worker_avg"),
            of("seconds"),
            of("burns_per_second"),
        );
        if let Some(lifetime) = round.get("held.lifetime_ns") {
            out += &format!(
                "lifetime {} seconds {lifetime:.0} ns.\nfree {} contended {}\nwait {} avg {} 1/1000 cpu time \
                    {}\n",
                seconds(lifetime / 1e9),
                of("held.free"),
                of("held.contended"),
                of("held.spun_ns"),
                of("held.spun_avg_ns"),
                of("spinning"),
            );
        }
        Some(out)
    });
    runs.collect::<Vec<_>>().join("\n")
}

pub(super) fn method(options: &Options, rows: &Rows) -> String {
    let plural = if rows.cpus == 1 { "" } else { "s" };
    let bound = if options.bind {
        "each kept on one of them in turn, the main thread wherever the scheduler puts it"
    } else {
        "wherever the scheduler puts them"
    };
    let mut method = format!(
        "Threads that sleep and are woken: {threads} threads on {cpus} CPU{plural}, {bound}. Each puts \
            itself on a \
         list and sleeps on a semaphore of its own; the main thread takes up to {wake} at a time off the \
         list and \
         wakes them with calls of up to 64 operations. Where nobody is on the list it yields. A burn of the \
         main \
         thread is a turn that woke somebody, a burn of a worker is a wake-up that it served; at the end as \
         many \
         must have been served as were made. All semaphores lie in one array. `futex` gives each thread a \
         word, \
         and each wake-up a system call; with `nanosleep` nobody is woken, and the threads look every {every} \
         ms. \
         The kernel does not say what its arrays' locks cost: a dash.\n\n\
         One thread: on one CPU, with a second thread alive; +1 and -1 in turn, nobody waits. Two threads: \
         with a \
         CPU and a semaphore each, in one array, +1 and -1 in turn.\n\n",
        threads = options.threads,
        cpus = rows.cpus,
        wake = options.wake,
        every = LOOK_EVERY.as_millis(),
    );
    method += &format!(
        "Pairs that wake each other: each pair has an array of two semaphores, on which its sides, processes or \
         threads, sleep in turn. A side that was woken pauses for {pause} us and wakes the other. A wait lasts \
         from before the call that wakes until the call that slept has returned. The first wait of each side \
         stands apart: it has the waker's first call in it, in which a process finds and maps the array.\n\n",
        pause = PAUSE.as_micros(),
    );
    if rows.of("crowds").next().is_some() {
        method += "Sleepers: the CPU time of the call that wakes, for each thread that it wakes, while ever \
            more \
                   threads sleep in one array. All are on one CPU; what those whom the call wakes do on it \
                   before the call is over does not count.\n\n";
    }
    method += &format!(
        "{rounds} rounds; in each, points come in random order, and at a point all mechanisms in random \
            order, each \
         in a process of its own, for {seconds:.3} s after a tenth of that to warm up (one thread's \
         operations, two \
         threads and each number of sleepers for a share of it). A figure is the median over the rounds, the \
         spread \
         their minimum and maximum; a ratio is taken inside each round before its median over the rounds. \
         \"Others\" is the share of the CPUs that went to other processes meanwhile: where it is not near 0, \
         the \
         figures are worth less.",
        rounds = options.common.rounds,
        seconds = options.seconds,
    );
    method
}

pub(super) fn tables(rows: &Rows) -> Vec<Table> {
    use Column::{Label, Median, Spread};
    let who = Label("mechanism", "mechanism");
    let of_kernel = Spread("of kernel", "of_kernel", 1.0, 2);
    let waits = [Median("contended %", "contended", 100.0, 2), Median("spinning %", "spinning", 100.0, 2)];
    let burns = [
        who,
        Spread("burns/s", "burns_per_second", 1.0, 0),
        of_kernel,
        Median("of before", "of_before", 1.0, 2),
        Median("woken at a time", "at_a_time", 1.0, 1),
        Median("CPU ns a burn", "cpu_ns", 1.0, 0),
        Median("sleeps", "voluntary", 1.0, 2),
        Median("preempted", "involuntary", 1.0, 2),
        waits[0],
        waits[1],
        Median("others", "others", 1.0, 2),
    ];
    let pairs = [who, Spread("calls/s, both", "calls_per_second", 1.0, 0), of_kernel, waits[0], waits[1]];
    let mut tables = vec![
        table("Threads that sleep and are woken", 1, &burns, rows.of("burns")),
        published_table(rows),
        alone_table(rows),
    ];
    if rows.of("pairs").next().is_some() {
        let title = "Two threads with a CPU and a semaphore each, in one array";
        tables.push(table(title, 1, &pairs, rows.of("pairs")));
    }
    for sides in Sides::ALL {
        let wakes = [
            Label("pairs", "number"),
            who,
            Spread("mean us", "waits.mean_ns", 1e-3, 1),
            Median("of kernel", "mean_of_kernel", 1.0, 2),
            Median("median us", "waits.p50_ns", 1e-3, 1),
            Median("99.9 % us", "waits.p999_ns", 1e-3, 0),
            Spread("longest us", "waits.max_ns", 1e-3, 0),
            Median("of kernel", "longest_of_kernel", 1.0, 2),
            Median("first us", "first_ns", 1e-3, 0),
        ];
        let title = format!("Waits of {} that wake each other in pairs", sides.words());
        let here = rows.of("wakes").filter(|row| row.is("sides", json!(sides)));
        tables.push(table(title, 2, &wakes, here));
    }
    tables.push(line_table(rows));
    tables.extend(Sleep::ALL.into_iter().map(|sleep| crowd_table(rows, sleep)));
    tables.retain(|table| !table.rows.is_empty());
    tables
}

/// Ours beside the source's, line by line as the source prints them.
fn published_table(rows: &Rows) -> Table {
    let mut headings = vec!["figure", "published, before", "published, after"];
    headings.extend(rows.of("burns").map(|row| row.who));
    let title = "Beside the figures that were published for a 4-core AMD Phenom (-t 250 -w 64 -o 0 -r 30 -b; \
        times \
                 there in ticks, here in ns): the round with the median rate";
    let mut table = Table::new(title, 1, &headings);
    for (words, _, published, figure) in PUBLISHED {
        let published = published.map(|figure| figure.to_string());
        let dash = || "-".to_owned();
        let ours = rows
            .of("burns")
            .map(|row| typical(row).and_then(|round| shown(round, figure)).unwrap_or_else(dash));
        table.rows.push([words.to_owned()].into_iter().chain(published).chain(ours).collect());
    }
    table
}

fn operation_of(row: &Row) -> Option<Operation> {
    Operation::ALL.into_iter().find(|operation| row.is("operation", json!(operation)))
}

fn alone_table(rows: &Rows) -> Table {
    let headings = [
        "call",
        "mechanism",
        "ns a call",
        "spread",
        "times the kernel's rate",
        "spread",
        "of a compare-and-swap",
    ];
    let mut table = Table::new("One thread", 2, &headings);
    for row in rows.of("alone") {
        // The floor is the same for all: once is enough.
        let Some(operation) = operation_of(row) else { continue };
        let bare = operation == Operation::Bare;
        if bare && row.who != "kernel" {
            continue;
        }
        let rate = row.get("times_the_kernels_rate").filter(|_| !bare);
        table.rows.push(vec![
            operation.words().to_owned(),
            if bare { "-" } else { row.who }.to_owned(),
            median(row.get("ns"), 1),
            spread(row.get("ns"), 1),
            median(rate, 2),
            spread(rate, 2),
            median(row.get("of_bare"), 1),
        ]);
    }
    table
}

/// The source's question: does it pay to give the lock a cache line of its own?
fn line_table(rows: &Rows) -> Table {
    let headings = ["figure", "after", "shared-line", "after, of shared-line", "spread"];
    let mut table = Table::new("Does the lock's own cache line pay?", 1, &headings);
    let mut add =
        |words: &str, section: &str, labels: &[_], figure: &str, factor: f64, decimals, ratio: bool| {
            let [own, shared] = ["after", "shared-line"].map(|who| rows.find(section, who, labels));
            let of = |row: Option<&Row>| row?.get(figure).map(|summary| summary.scaled(factor));
            let ratio = own.and_then(|row| row.get("of_shared_line")).filter(|_| ratio);
            if let (own @ Some(_), shared @ Some(_)) = (of(own), of(shared)) {
                let cells =
                    [median(own, decimals), median(shared, decimals), median(ratio, 3), spread(ratio, 3)];
                table.rows.push([words.to_owned()].into_iter().chain(cells).collect());
            }
        };
    add("burns/s", "burns", &[], "burns_per_second", 1.0, 0, true);
    add("contended acquisitions, %", "burns", &[], "contended", 100.0, 2, false);
    add("CPU time lost to spinning, %", "burns", &[], "spinning", 100.0, 2, false);
    add("two threads, calls/s", "pairs", &[], "calls_per_second", 1.0, 0, true);
    for operation in Operation::ALL.into_iter().filter(|&operation| operation != Operation::Bare) {
        let words = format!("one thread, {}, ns", operation.words());
        add(&words, "alone", &[("operation", json!(operation))], "ns", 1.0, 1, true);
    }
    table
}

fn crowd_table(rows: &Rows, sleep: Sleep) -> Table {
    let here = || rows.of("crowds").filter(|row| row.is("sleep", json!(sleep)));
    let mut headings = vec!["sleepers"];
    for row in here() {
        if !headings.contains(&row.who) {
            headings.push(row.who);
        }
    }
    let title = format!("Sleepers, {}: ns a wake-up, and its growth with a doubling", sleep.words());
    let mut table = Table::new(title, 1, &headings);
    for [number] in rows.values("crowds", ["sleepers"]).into_iter().filter(|_| headings.len() > 1) {
        let cells = headings[1..].iter().map(|who| {
            let row = here().find(|row| row.who == *who && row.is("sleepers", number.clone()));
            let growth = row.and_then(|row| row.get("growth"));
            let growth = growth.map_or_else(String::new, |growth| format!(" ({:.2})", growth.median));
            median(row.and_then(|row| row.get("ns")), 0) + &growth
        });
        table.rows.push([number.to_string()].into_iter().chain(cells).collect());
    }
    table
}

pub(super) fn targets(options: &Options, rows: &Rows) -> Vec<Target> {
    let is_ours = |row: &&Row| Mechanism::ALL.iter().any(|one| one.name() == row.who && one.is_ours());
    let target = |figure: String, limit, unit, section, name: &str, factor: f64| {
        let here = rows.of(section).filter(is_ours);
        let here = here.filter(|row| section != "alone" || operation_of(row) == Some(Operation::One));
        let results = here.map(|row| (row.who, row.get(name).map(|summary| summary.scaled(factor))));
        Target::new(figure, limit, unit, results)
    };
    let rate = "one thread, one operation: times the kernel's rate".to_owned();
    let mut targets = vec![target(rate, Limit::AtLeast(5.0), "", "alone", "times_the_kernels_rate", 1.0)];
    if (options.threads, options.wake, options.bind) == (TARGET_THREADS, TARGET_WAKE, true) {
        for (what, limit, unit, name, factor) in [
            ("burns a second, of the kernel's", Limit::AtLeast(1.0), "", "of_kernel", 1.0),
            ("CPU time lost to spinning", Limit::AtMost(1.1), "%", "spinning", 100.0),
            ("contended acquisitions", Limit::AtMost(6.0), "%", "contended", 100.0),
        ] {
            let what = format!("-t {TARGET_THREADS} -w {TARGET_WAKE} -b: {what}");
            targets.push(target(what, limit, unit, "burns", name, factor));
        }
    }
    // The row with the largest median.
    let mut worst = |what: String, limit, section: &str, label: (&str, Value), figure: &str| {
        let of = |one: &Mechanism| -> Option<Summary> {
            let here =
                rows.of(section).filter(|row| row.who == one.name() && row.is(label.0, label.1.clone()));
            here.filter_map(|row| row.get(figure)).max_by(|a, b| a.median.total_cmp(&b.median))
        };
        let of_kernel = section == "wakes";
        let arrays = Mechanism::ALL.into_iter().filter(|one| one.is_array() && (!of_kernel || one.is_ours()));
        let results = arrays.map(|one| (one.name(), of(&one)));
        targets.push(Target::new(what + ", the worst", Limit::AtMost(limit), "", results));
    };
    for sides in Sides::ALL {
        for (what, limit, figure) in [
            ("mean wait", MEAN_OF_KERNEL, "mean_of_kernel"),
            ("longest wait", LONGEST_OF_KERNEL, "longest_of_kernel"),
        ] {
            let what = format!("pairs of {} that wake each other: {what}, of the kernel's", sides.words());
            worst(what, limit, "wakes", ("sides", json!(sides)), figure);
        }
    }
    for sleep in Sleep::ALL {
        let what = format!("sleepers, {}: growth with a doubling", sleep.words());
        worst(what, GROWTH, "crowds", ("sleep", json!(sleep)), "growth");
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Figures, by_default, tests::made_up_of};
    use crate::report::text;

    fn options() -> Options {
        Options { bind: true, ..by_default() }
    }

    /// Figures of three rounds, the second at half speed.
    fn made_up(options: &Options, cpus: usize) -> Figures {
        made_up_of(options, cpus, |cell, _, speed| {
            let who = cell.who;
            let rate = match who {
                "kernel" => 1000.0,
                "before" => 600.0,
                "after" => 1200.0,
                "shared-line" => 900.0,
                _ => 500.0,
            };
            let ours = ["before", "after", "shared-line", "combining"].contains(&who);
            let number = cell.label("sleepers").as_f64().unwrap_or(0.0);
            match cell.section {
                "burns" => {
                    let rate = rate * speed;
                    let (min, max) = ((rate / 2.0).floor() - 1.0, (rate / 2.0).floor() + 1.0);
                    let mut figures = vec![
                        ("seconds", 1.0),
                        ("main_burns", 10.0),
                        ("worker_burns", rate),
                        ("worker_min", min),
                        ("worker_max", max),
                        ("worker_avg", rate / 2.0),
                        ("burns_per_second", rate),
                    ];
                    let (contended, spun): (f64, f64) =
                        if who == "before" { (910.0, 94e7) } else { (50.0, 2e7) };
                    let held = [
                        ("held.lifetime_ns", 1e9),
                        ("held.free", 1000.0 - contended),
                        ("held.contended", contended),
                        ("held.spun_ns", spun),
                        ("held.spun_avg_ns", (spun / contended).floor()),
                        ("spinning", spun / 2e9),
                        ("contended", contended / 1000.0),
                    ];
                    figures.extend(held.into_iter().filter(|_| ours));
                    figures
                }
                "alone" => {
                    let ns = match (cell.label("operation").as_str(), who) {
                        (Some("bare"), _) => 5.0,
                        (_, "kernel") => 400.0,
                        (_, "after") => 50.0,
                        _ => 100.0,
                    };
                    vec![("ns", ns / speed)]
                }
                "pairs" => vec![("calls_per_second", 2.0 * rate * speed)],
                "wakes" => {
                    let of_kernel = if who == "kernel" { 1.0 } else { 1.1 };
                    let longest = 1e5 * of_kernel * cell.label("number").as_f64().unwrap();
                    vec![("waits.mean_ns", 5e3 * of_kernel), ("waits.max_ns", longest * of_kernel / speed)]
                }
                // Linear, and for `before` square where ten are woken.
                _ if cell.label("sleep") == "ten" && who == "before" => {
                    vec![("ns", number * number / speed), ("growth", 4.0)]
                }
                _ => vec![("ns", 10.0 * number / speed), ("growth", 2.0)],
            }
        })
    }

    #[test]
    fn targets_follow_from_the_rows() {
        let figures = made_up(&options(), 2);
        let published = "-t 250 -w 64 -b: ";
        for (figure, who, value, verdict) in [
            ("one thread, one operation: times the kernel's rate", "after", 8.0, "reached"),
            ("one thread, one operation: times the kernel's rate", "before", 4.0, "missed"),
            (&format!("{published}burns a second"), "after", 1.2, "reached"),
            (&format!("{published}burns a second"), "shared-line", 0.9, "missed"),
            (&format!("{published}CPU time lost to spinning"), "after", 1.0, "reached"),
            (&format!("{published}CPU time lost to spinning"), "before", 47.0, "missed"),
            (&format!("{published}contended"), "after", 5.0, "reached"),
            (&format!("{published}contended"), "before", 91.0, "missed"),
            ("pairs of processes that wake each other: mean", "after", 1.1, "reached"),
            ("pairs of threads that wake each other: longest", "after", 1.21, "reached"),
            ("sleepers, one operation each", "after", 2.0, "reached"),
            ("sleepers, two operations each, one", "before", 2.0, "reached"),
            ("sleepers, two operations each, the ten that came last", "after", 2.0, "reached"),
            ("sleepers, two operations each, the ten that came last", "before", 4.0, "missed"),
        ] {
            assert_eq!(figures.target(figure, who), (value, verdict), "{figure}");
        }
        // Those of the published run need its options.
        for other in [
            Options { bind: false, ..options() },
            Options { threads: 249, ..options() },
            Options { wake: 63, ..options() },
        ] {
            let figures = made_up(&other, 2);
            let has = |words: &str| figures.report.targets.iter().any(|target| target.figure.contains(words));
            assert!(!has("burns a second") && has("kernel's rate"), "{other:?}");
        }
    }

    #[test]
    fn a_lone_cpu_has_no_pairs_and_no_sleepers_no_crowds() {
        let figures = made_up(&Options { no_sleepers: true, ..options() }, 1);
        let json = serde_json::to_value(&figures).unwrap();
        assert_eq!([&json["pairs"], &json["crowds"]], [&json!([]), &json!([])]);
        assert!(!figures.report.targets.iter().any(|target| target.figure.starts_with("sleepers")));
        assert_eq!(figures.picture.as_deref(), None);
        assert!(
            !text(&figures.report, true)
                .contains("Two threads with a CPU and a semaphore each, in one array\n")
        );
    }

    #[test]
    fn variants_that_differ_in_the_lock_only_have_crowds_if_they_are_named() {
        let has = |mechanisms: &[Mechanism]| {
            let json =
                serde_json::to_value(made_up(&Options { mechanisms: mechanisms.to_vec(), ..options() }, 2));
            let json = json.unwrap();
            // The reference takes part always, and once.
            let kernels = json["burns"].as_array().unwrap().iter().filter(|row| row["mechanism"] == "kernel");
            assert_eq!(kernels.count(), 1);
            json["crowds"].as_array().unwrap().iter().any(|row| row["mechanism"] == "combining")
        };
        assert!(!has(&[]) && !has(&[Mechanism::After]));
        assert!(has(&[Mechanism::Combining, Mechanism::Kernel]));
    }

    #[test]
    fn ours_stand_beside_the_sources_and_after_beside_the_shared_line() {
        let tables = made_up(&options(), 2).report.tables;
        let table = |title: &str| tables.iter().find(|table| table.title.starts_with(title)).unwrap();
        for (title, row, column, cell) in [
            ("Beside", "contended", "published, before", "7801967"),
            ("Beside", "contended", "kernel", "-"),
            ("Beside", "contended", "after", "50"),
            ("Beside", "1/1000 cpu time", "published, after", "11"),
            ("Beside", "1/1000 cpu time", "before", "470"),
            ("Beside", "wait, avg", "after", "400000"),
            ("Beside", "worker burns per second", "kernel", "1000"),
            ("Does the lock's own", "burns/s", "after", "1200"),
            ("Does the lock's own", "burns/s", "after, of shared-line", "1.333"),
            ("Does the lock's own", "one thread, one operation, ns", "shared-line", "100.0"),
            ("Does the lock's own", "one thread, one operation, ns", "after, of shared-line", "0.500"),
            ("Does the lock's own", "two threads, calls/s", "after, of shared-line", "1.333"),
            ("Waits of processes", "16", "longest us", "1600"),
            ("Sleepers, two operations each, the ten", "160", "before", "25600 (4.00)"),
        ] {
            let table = table(title);
            let place = table.headings.iter().position(|heading| heading == column).unwrap();
            let found = table.rows.iter().find(|cells| cells[0] == row).map(|cells| cells[place].as_str());
            assert_eq!(found, Some(cell), "{title}: {row}, {column}");
        }
    }

    #[test]
    fn the_listing_is_in_the_sources_words() {
        let listing = made_up(&options(), 2).report.listing;
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
    fn everything_is_in_the_report_and_the_picture() {
        let figures = made_up(&options(), 2);
        let text = text(&figures.report, true);
        for title in
            ["Threads that", "Beside", "One thread", "Two threads", "Does the lock's", "Sleepers", "Targets"]
        {
            assert!(text.lines().any(|line| line.starts_with(title)), "no {title} in\n{text}");
        }
        let picture = figures.picture.as_deref().unwrap();
        assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"), "{picture}");
        for mechanism in Mechanism::ALL {
            assert!(text.contains(mechanism.name()), "no {mechanism} in\n{text}");
            let drawn = picture.lines().any(|line| line.trim() == mechanism.name());
            let measured = ["kernel", "before", "after", "futex"].contains(&mechanism.name());
            assert_eq!(drawn, measured, "{mechanism} in\n{picture}");
        }
        assert!(Sleep::ALL.iter().all(|sleep| picture.contains(sleep.words())), "{picture}");
    }

    #[test]
    fn the_published_figures_agree_with_each_other() {
        for side in [0, 1] {
            let of = |key: &str| PUBLISHED.iter().find(|line| line.1 == key).unwrap().2[side];
            assert_eq!(of("worker_burns") / 250, of("worker_avg"));
            assert_eq!(of("wait_ticks") / of("contended"), of("wait_avg_ticks"));
            // The benchmark counted whole seconds only.
            assert_eq!(of("worker_burns") / of("seconds"), of("burns_per_second"));
            // Of 4 CPUs.
            assert_eq!(of("wait_ticks") * 1000 / (of("lifetime_ticks") * 4), of("permille"));
        }
    }
}
