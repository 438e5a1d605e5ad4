//! What a lock costs that nobody contends for.

use serde::Serialize;
use serde_json::Value;

use crate::Summary;
use crate::affinity;
use crate::contender::{self, DEFAULT};
use crate::error::Result;
use crate::launch::Process;
use crate::plan::{Column, Plan, Preset, Row, Rows, check_run, table};
use crate::report::{Limit, Table, Target};
use crate::worker::Task;
use crate::worker::alone::Operation;

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Options {
    /// Only these locks (glibc always takes part)
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub locks: Vec<String>,
    /// Rounds in which everybody takes part once
    #[arg(long, value_name = "N", default_value_t = 9)]
    pub rounds: usize,
    /// Seconds for each operation of each contender in a round
    #[arg(long, value_name = "S", default_value_t = 0.04)]
    pub seconds: f64,
    /// The CPU to measure on [default: the last that is allowed]
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
}

/// Slices that an operation's time in a round is cut into. Operations take turns slice by slice, and the
/// median over the slices leaves out those in which the thread was preempted.
const SLICES: u32 = 100;

/// What is inlined or called that is no contender: the driver's own share, and the least that a lock does.
pub(crate) const FLOORS: [&str; 9] = [
    "cas+exchange",
    "crate-mutex",
    "parking-lot-mutex",
    "atomic-add",
    #[cfg(target_arch = "x86_64")]
    "time-stamp",
    #[cfg(not(target_arch = "x86_64"))]
    "cas+store",
    "empty-loop",
    "bare-calls",
    "bare-store-calls",
    "empty-calls",
];

/// Our locks as Rust types that are inlined.
const RUST: [&str; 5] = ["baseline", "fewer-atomics", "mcs-queue", "any-negative", "poundlock"];

fn words(operation: &str) -> String {
    match operation {
        "lock-unlock" => "lock + unlock",
        "trylock-unlock" => "trylock + unlock",
        "recursive-lock-unlock" => "recursive lock + unlock",
        "slept-lock-unlock" => "lock + unlock, once slept in",
        "c-library" => "poundlock_mutex_lock + poundlock_mutex_unlock",
        "c-recursive" => "poundlock_recursive_mutex_lock + poundlock_recursive_mutex_unlock",
        "crate-mutex" => "poundlock::Mutex",
        "parking-lot-mutex" => "parking_lot::Mutex",
        "empty-calls" => "two empty calls (driver of the C functions)",
        "bare-calls" => "two calls: compare-and-swap, exchange",
        "bare-store-calls" => "two calls: compare-and-swap, plain store",
        "bare-cas-exchange" => "compare-and-swap + exchange",
        "atomic-add" => "one atomic add",
        "time-stamp" => "one rdtsc",
        "empty-loop" => "empty loop (driver of the inlined)",
        rust => return rust.replacen("rust-", "Rust type, ", 1),
    }
    .to_owned()
}

impl Preset for Options {
    const TITLE: &'static str = "Uncontended";
    const TARGETS: &'static str = "Targets (they are about the default lock; the others for comparison)";

    fn check(&self) -> Result<()> {
        check_run(self.rounds, self.seconds, 60.0)
    }

    fn common(&self) -> (usize, Option<usize>) {
        (self.rounds, None)
    }

    fn plan(&self, plan: &mut Plan) -> Result<()> {
        use Operation::{LockUnlock, Slept, Trylock};
        plan.alone_on = affinity::one(self.cpu)?;
        let locks = contender::choose(contender::symbols(), &self.locks, &["glibc"], "lock")?;
        let mut add =
            |who: &'static str, ours, threads: &str, stat: bool, timed: Vec<(&str, &str, Operation)>| {
                let process =
                    Process { ours, stat, ..Process::plain(if who.is_empty() { "floors" } else { who }) };
                let label = |operation: &str| -> Vec<(&'static str, Value)> {
                    let words = words(operation).into();
                    vec![
                        ("threads", threads.into()),
                        ("operation", operation.into()),
                        ("words", words),
                        ("stat", stat.into()),
                    ]
                };
                let timed = timed
                    .iter()
                    .map(|(name, key, what)| (who, ((*key).to_owned(), *what), label(name)))
                    .collect();
                plan.alone("rows", process, threads == "two", self.seconds, SLICES, timed);
            };
        for threads in ["two", "one"] {
            for who in &locks {
                let mut timed =
                    vec![("lock-unlock", &*who.alone, LockUnlock), ("trylock-unlock", &*who.alone, Trylock)];
                if who.name != "glibc-adaptive" {
                    timed.push(("recursive-lock-unlock", "library:recursive", LockUnlock));
                }
                if threads == "two" {
                    timed.push(("slept-lock-unlock", &*who.alone, Slept));
                }
                add(who.name, who.library, threads, false, timed);
                if who.ours && threads == "two" {
                    add(who.name, who.library, threads, true, vec![("lock-unlock", &*who.alone, LockUnlock)]);
                }
            }
        }
        let named = |name: &str| locks.iter().any(|who| who.name == name);
        let ours = locks.iter().any(|who| who.ours);
        let mut floors = vec![("bare-cas-exchange".to_owned(), "cas+exchange")];
        floors.extend(RUST.iter().filter(|name| named(name)).map(|name| (format!("rust-{name}"), *name)));
        let rest = FLOORS[1..].iter().filter(|name| ours || !name.ends_with("-mutex"));
        floors.extend(rest.map(|name| ((*name).to_owned(), *name)));
        if ours && Task::c_library_is_there() {
            floors.extend(["c-library", "c-recursive"].map(|name| (name.to_owned(), name)));
        }
        add("", None, "two", false, floors.iter().map(|(name, key)| (&**name, *key, LockUnlock)).collect());
        let is_floor = |labels: &Vec<(&str, Value)>| labels.iter().all(|(name, _)| *name != "lock");
        plan.of("rows", "of_glibc", "ns", vec![("lock", "glibc".into()), ("stat", false.into())])
            .only(|labels| labels.iter().any(|(name, _)| *name == "lock"));
        let cas = |name: &'static str| vec![("operation", name.into()), ("words", words(name).into())];
        plan.of("rows", "of_bare", "ns", cas("bare-cas-exchange")).only(is_floor);
        let own = |labels: &Vec<(&str, Value)>| labels.contains(&("operation", "crate-mutex".into()));
        plan.of("rows", "of_parking_lot", "ns", cas("parking-lot-mutex")).only(own);
        let glibcs = |operation| [("lock", "glibc".into())].into_iter().chain(cas(operation)).collect();
        plan.of("rows", "of_glibc", "ns", glibcs("lock-unlock"))
            .only(|labels| labels.contains(&("operation", "c-library".into())));
        plan.of("rows", "of_glibc", "ns", glibcs("recursive-lock-unlock"))
            .only(|labels| labels.contains(&("operation", "c-recursive".into())));
        plan.of("rows", "stat_adds_ns", "ns", vec![("stat", false.into())])
            .how(|with, without| with - without)
            .only(|labels| labels.contains(&("stat", true.into())));
        Ok(())
    }

    fn extra(&self, rows: &Rows) -> Vec<(&'static str, Value)> {
        vec![("c_library", rows.of("rows").any(|row| row.is("operation", "c-library")).into())]
    }

    fn answer(&self, rows: &Rows) -> Option<String> {
        let row = rows.find("rows", DEFAULT, &[("operation", "lock-unlock".into())])?;
        let (ns, ratio) = (row.get("ns")?, row.get("of_glibc")?);
        Some(format!(
            "A lock and an unlock of {DEFAULT} that nobody contends with take {:.1} ns, {} of the time of \
             glibc's default mutex.",
            ns.median,
            ratio.words()
        ))
    }

    fn method(&self, rows: &Rows) -> String {
        let missing = if rows.of("rows").any(|row| row.is("operation", "c-library")) {
            ""
        } else {
            " The C library was not found: install it by `cargo cinstall`, or name the file in \
                POUNDLOCK_C_LIBRARY."
        };
        format!(
            "Time of a lock and an unlock by one thread that nobody contends with, kept on one CPU. \
                Functions of the C ABI are \
             called through pointers from the dynamic linker, on a lock of their own, each contender in \
             processes of its own; what \
             a Rust program would inline is inlined. {} rounds, in each of which every contender takes part \
             once, in random \
             order; {} ms an operation and round. A figure is the median over the rounds, the spread their \
             minimum and maximum; a \
             ratio is taken inside each round before its median over the rounds. Nothing is subtracted: what \
             the driver costs is \
             listed.{missing}",
            self.rounds,
            self.seconds * 1000.0,
        )
    }

    fn tables(&self, rows: &Rows) -> Vec<Table> {
        use Column::{Label, Median, Spread};
        let (lock, operation) = (Label("lock", "lock"), Label("operation", "words"));
        let ns = Spread("ns a pair", "ns", 1.0, 2);
        let all = |title: &str, figure, (threads, stat): (&'static str, bool)| {
            let here =
                move |row: &&Row| !row.who.is_empty() && row.is("threads", threads) && row.is("stat", stat);
            table(title, 2, &[lock, operation, ns, figure], rows.of("rows").filter(here))
        };
        let glibc = Spread("of glibc", "of_glibc", 1.0, 2);
        let adds = Spread("adds ns", "stat_adds_ns", 1.0, 2);
        let rust = [
            operation,
            Spread("ns", "ns", 1.0, 2),
            Spread("of compare-and-swap + exchange", "of_bare", 1.0, 2),
            Median("of glibc", "of_glibc", 1.0, 2),
            Median("of parking_lot", "of_parking_lot", 1.0, 2),
        ];
        let others = rows.of("rows").filter(|row| row.who.is_empty());
        let mut tables = vec![
            all("A second thread is alive", glibc, ("two", false)),
            all("A process with one thread, where glibc does without atomics", glibc, ("one", false)),
            all("Statistics, a second thread alive", adds, ("two", true)),
            table("Rust types, the C library, and the floors", 1, &rust, others),
        ];
        tables.retain(|table| !table.rows.is_empty());
        tables
    }

    fn targets(&self, rows: &Rows) -> Vec<Target> {
        let target = |figure: &str, limit: f64, unit, results: Vec<(&'static str, Option<Summary>)>| {
            Target::new(figure, Limit::AtMost(limit), unit, results)
        };
        let ours = |threads: &'static str, stat: bool, operation: &str, figure: &str| {
            let here = |row: &&Row| {
                row.is("threads", threads)
                    && row.is("stat", stat)
                    && row.is("operation", operation)
                    && !["", "glibc", "glibc-adaptive"].contains(&row.who)
            };
            let rows = rows.of("rows").filter(here).map(|row| (row.who, row.get(figure)));
            rows.collect::<Vec<_>>()
        };
        // Its release is a read-modify-write always, so it has a target of its own.
        let hands_over = |lock: &str| lock.starts_with("handoff");
        let alive = |operation: &str, whose: &dyn Fn(&str) -> bool| {
            let mut results = ours("two", false, operation, "of_glibc");
            results.retain(|(lock, _)| whose(lock));
            results
        };
        let but_handoff = |operation: &str| alive(operation, &|lock| !hands_over(lock));
        let floor = |operation: &str, lock: &'static str, figure: &str| {
            let row = rows.of("rows").find(|row| row.is("operation", operation));
            row.map(|row| (lock, row.get(figure)))
        };
        let one = |operation: &str, figure: &str| floor(operation, DEFAULT, figure).into_iter().collect();
        let rust = RUST.iter().filter_map(|lock| floor(&format!("rust-{lock}"), lock, "of_bare")).collect();
        let alone = ours("one", false, "lock-unlock", "of_glibc");
        vec![
            target(
                "lock + unlock, a second thread alive: time of glibc's",
                0.85,
                "",
                but_handoff("lock-unlock"),
            ),
            target("trylock + unlock: time of glibc's", 0.9, "", but_handoff("trylock-unlock")),
            target("recursive lock + unlock: time of glibc's", 1.0, "", but_handoff("recursive-lock-unlock")),
            target(
                "lock + unlock, once slept in: time of glibc's",
                0.95,
                "",
                but_handoff("slept-lock-unlock"),
            ),
            target(
                "lock + unlock of the hand-off mutex: time of glibc's",
                1.3,
                "",
                alive("lock-unlock", &hands_over),
            ),
            target("Rust type, inlined: time of compare-and-swap + exchange", 1.15, "", rust),
            target("C library, lock + unlock: time of glibc's", 0.85, "", one("c-library", "of_glibc")),
            target("C library, recursive: time of glibc's", 1.0, "", one("c-recursive", "of_glibc")),
            target(
                "poundlock::Mutex, inlined: time of parking_lot::Mutex",
                1.05,
                "",
                one("crate-mutex", "of_parking_lot"),
            ),
            target("lock + unlock in a process with one thread: time of glibc's", 1.0, "", alone),
            target(
                "added by statistics to lock + unlock",
                15.0,
                "ns",
                ours("two", true, "lock-unlock", "stat_adds_ns"),
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{by_default, tests::made_up};

    #[test]
    fn targets_and_tables_follow_from_the_rows() {
        let figures = made_up(&by_default::<Options>(), 2, |_, who, label| match who {
            "glibc" => 20.0,
            "poundlock" if label("stat") == true => 30.0,
            "poundlock" => 16.0,
            "" if label("operation") == "rust-poundlock" => 11.0,
            "" => 10.0,
            _ => 20.0,
        });
        assert_eq!(figures.target("lock + unlock, a second", "poundlock"), (0.8, "reached"));
        assert_eq!(figures.target("lock + unlock, a second", "baseline"), (1.0, "missed"));
        assert_eq!(figures.target("Rust type", "poundlock"), (1.1, "reached"));
        // 14 ns in two rounds, 28 in one: the spread crosses the limit.
        assert_eq!(figures.target("added by statistics", "poundlock"), (14.0, "undecided"));
    }
}
