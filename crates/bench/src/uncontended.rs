//! What a lock costs that nobody contends for.

use serde::Serialize;
use serde_json::Value;

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

    fn rounds(&self) -> usize {
        self.rounds
    }

    fn cpus(&self) -> Option<usize> {
        None
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
            floors.push(("c-library".to_owned(), "c-library"));
        }
        add("", None, "two", false, floors.iter().map(|(name, key)| (&**name, *key, LockUnlock)).collect());
        let is_floor = |labels: &Vec<(&str, Value)>| labels.iter().all(|(name, _)| *name != "lock");
        plan.of("rows", "of_glibc", "ns", vec![("lock", "glibc".into()), ("stat", false.into())])
            .only(|labels| labels.iter().any(|(name, _)| *name == "lock"));
        let cas = |name: &'static str| vec![("operation", name.into()), ("words", words(name).into())];
        plan.of("rows", "of_bare", "ns", cas("bare-cas-exchange")).only(is_floor);
        let own = |labels: &Vec<(&str, Value)>| labels.contains(&("operation", "crate-mutex".into()));
        plan.of("rows", "of_parking_lot", "ns", cas("parking-lot-mutex")).only(own);
        let library = [("lock", "glibc".into())].into_iter().chain(cas("lock-unlock")).collect();
        plan.of("rows", "of_glibc", "ns", library)
            .only(|labels| labels.contains(&("operation", "c-library".into())));
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
            "A lock and an unlock of {DEFAULT} that nobody contends with take {:.1} ns, {:.2} ({:.2}..{:.2}) of the time of \
             glibc's default mutex.",
            ns.median, ratio.median, ratio.min, ratio.max
        ))
    }

    fn method(&self, rows: &Rows) -> String {
        let missing = if rows.of("rows").any(|row| row.is("operation", "c-library")) {
            ""
        } else {
            " The C library was not found: install it by `cargo cinstall`, or name the file in POUNDLOCK_C_LIBRARY."
        };
        format!(
            "Time of a lock and an unlock by one thread that nobody contends with, kept on one CPU. Functions of the C ABI are \
             called through pointers from the dynamic linker, on a lock of their own, each contender in processes of its own; what \
             a Rust program would inline is inlined. {} rounds, in each of which every contender takes part once, in random \
             order; {} ms an operation and round. A figure is the median over the rounds, the spread their minimum and maximum; a \
             ratio is taken inside each round before its median over the rounds. Nothing is subtracted: what the driver costs is \
             listed.{missing}",
            self.rounds,
            self.seconds * 1000.0,
        )
    }

    fn tables(&self, rows: &Rows) -> Vec<Table> {
        use Column::{Label, Median, Spread};
        let (lock, operation) = (Label("lock", "lock"), Label("operation", "words"));
        let ns = [Median("ns a pair", "ns", 1.0, 2), Spread("ns", 1.0, 2)];
        let glibc = [Median("of glibc", "of_glibc", 1.0, 2), Spread("of_glibc", 1.0, 2)];
        let adds = [Median("adds ns", "stat_adds_ns", 1.0, 2), Spread("stat_adds_ns", 1.0, 2)];
        let all = |threads: &'static str, stat: bool| {
            let here =
                move |row: &&Row| !row.who.is_empty() && row.is("threads", threads) && row.is("stat", stat);
            rows.of("rows").filter(here)
        };
        let plain = [[lock, operation].as_slice(), &ns, &glibc].concat();
        let mut tables = vec![
            table("A second thread is alive", 2, &plain, all("two", false)),
            table(
                "A process with one thread, where glibc does without atomics",
                2,
                &plain,
                all("one", false),
            ),
            table(
                "Statistics, a second thread alive",
                2,
                &[[lock, operation].as_slice(), &ns, &adds].concat(),
                all("two", true),
            ),
            table(
                "Rust types, the C library, and the floors",
                1,
                &[
                    operation,
                    Median("ns", "ns", 1.0, 2),
                    ns[1],
                    Median("of compare-and-swap + exchange", "of_bare", 1.0, 2),
                    Spread("of_bare", 1.0, 2),
                    glibc[0],
                    Median("of parking_lot", "of_parking_lot", 1.0, 2),
                ],
                rows.of("rows").filter(|row| row.who.is_empty()),
            ),
        ];
        tables.retain(|table| !table.rows.is_empty());
        tables
    }

    fn targets(&self, rows: &Rows) -> Vec<Target> {
        let ours = |threads: &'static str, stat: bool, figure: &'static str| {
            let here = move |row: &&Row| {
                row.is("threads", threads)
                    && row.is("stat", stat)
                    && row.is("operation", "lock-unlock")
                    && !["", "glibc", "glibc-adaptive"].contains(&row.who)
            };
            rows.of("rows").filter(here).map(move |row| (row.who, row.get(figure)))
        };
        let floor = |operation: String, lock: &'static str, figure: &'static str| {
            let row = rows.of("rows").find(|row| row.is("operation", operation.as_str()));
            row.map(|row| (lock, row.get(figure)))
        };
        vec![
            Target::new(
                "lock + unlock, a second thread alive: time of glibc's",
                Limit::AtMost(0.85),
                "",
                ours("two", false, "of_glibc"),
            ),
            Target::new(
                "Rust type, inlined: time of compare-and-swap + exchange",
                Limit::AtMost(1.15),
                "",
                RUST.iter().filter_map(|lock| floor(format!("rust-{lock}"), lock, "of_bare")),
            ),
            Target::new(
                "C library, lock + unlock: time of glibc's",
                Limit::AtMost(0.85),
                "",
                floor("c-library".to_owned(), DEFAULT, "of_glibc"),
            ),
            Target::new(
                "poundlock::Mutex, inlined: time of parking_lot::Mutex",
                Limit::AtMost(1.05),
                "",
                floor("crate-mutex".to_owned(), DEFAULT, "of_parking_lot"),
            ),
            Target::new(
                "lock + unlock in a process with one thread: time of glibc's",
                Limit::AtMost(1.1),
                "",
                ours("one", false, "of_glibc"),
            ),
            Target::new(
                "added by statistics to lock + unlock",
                Limit::AtMost(15.0),
                "ns",
                ours("two", true, "stat_adds_ns"),
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
