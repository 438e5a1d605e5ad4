//! OSv's benchmark of mutexes, point by point, over every lock that we have and the C library's: sizes, the
//! uncontended lock, the hand-off by itself, incrementing threads, trylock, and a checker that yields inside.

use std::mem;

use poundlock_core::adaptive::RawAdaptive;
use poundlock_core::condvar::RawCondvar;
use poundlock_core::handoff::{Handoff, RawHandoff};
use poundlock_core::poundlock::RawPoundlock;
use poundlock_core::qspin::RawSpin;
use poundlock_linux::Linux;
use serde::Serialize;
use serde_json::{Value, json};

use crate::Summary;
use crate::contender::{self, Contender, MUTEX_REFERENCES};
use crate::error::Result;
use crate::plan::{
    Column, Common, Plan, Preset, Row, Rows, check_run, check_threads, check_us, in_rounds, ns, table,
};
use crate::report::{Limit, Table, Target, median};
use crate::worker::alone::Operation;
use crate::worker::drive::{self, Inside};
use crate::worker::pass::{self, Next};

/// What to measure and for how long.
#[derive(Clone, Debug, Serialize, clap::Args)]
pub struct Options {
    /// Only these locks (those that they are compared with take part always)
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub locks: Vec<String>,
    /// Numbers of incrementing threads (2, and one for each CPU, always)
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_values_t = [2, 4, 20])]
    pub threads: Vec<usize>,
    /// Microseconds of work inside the critical section (none always)
    #[arg(long = "critical", value_name = "US,..", value_delimiter = ',', default_values_t = [0.0, 1.0])]
    pub critical_us: Vec<f64>,
    /// Seconds for each contender at each point in a round; twice that where threads share the CPUs
    #[arg(long, value_name = "S", default_value_t = 0.05)]
    pub seconds: f64,
    /// How often, and on how many CPUs.
    #[command(flatten)]
    #[serde(flatten)]
    pub common: Common<ROUNDS>,
}

/// So many because four threads on two CPUs either fall into a convoy of sleepers or do not.
const ROUNDS: usize = 11;

/// OSv's misc-mutex, incrementing threads, on 4 CPUs: threads, nanoseconds without spinning and with it. From
/// Nadav Har'El, "RFC: Mutex with spinning", osv-dev, 2014.
///
/// The benchmark divides the time of the run by the increments of *one* thread, while all threads make as
/// many. So with n threads these are n times the time that passes from one acquisition to the next.
const PUBLISHED: [(usize, f64, f64); 2] = [(2, 800.0, 33.0), (4, 1800.0, 153.0)];

/// The share of [`Options::seconds`] that one thread has for an operation.
const ALONE: f64 = 0.25;

/// Bytes of locks: plain, recursive, and of the condition variable that goes with it; 0 for what there is
/// not.
fn sizes() -> [(&'static str, [usize; 3]); 6] {
    let condvar = mem::size_of::<RawCondvar<Linux>>();
    let pthread = mem::size_of::<libc::pthread_mutex_t>();
    let handoff = [mem::size_of::<RawHandoff<Linux>>(), mem::size_of::<Handoff<Linux>>(), condvar];
    [
        ("glibc, and ours behind its symbols", [pthread, pthread, mem::size_of::<libc::pthread_cond_t>()]),
        ("pthread_spin, and ours behind its symbols", [mem::size_of::<libc::pthread_spinlock_t>(), 0, 0]),
        ("poundlock", [mem::size_of::<RawPoundlock<Linux>>(), 0, condvar]),
        ("baseline to any-negative", [mem::size_of::<RawAdaptive<Linux>>(), 0, condvar]),
        ("handoff, every policy", handoff),
        ("qspin, every form", [mem::size_of::<RawSpin<Linux>>(), 0, 0]),
    ]
}

fn key(what: Operation) -> (&'static str, &'static str) {
    match what {
        Operation::Again => ("again", "lock + unlock, held already"),
        Operation::Trylock => ("trylock", "trylock + unlock"),
        Operation::TrylockHeld => ("trylock-held", "trylock, held by another"),
        Operation::ByToken => ("by-token", "unlock leaves a token, trylock takes it"),
        Operation::ThroughQueue => ("through-queue", "queue, unlock hands over and wakes, receive"),
        _ => ("lock-unlock", "lock + unlock"),
    }
}

impl Options {
    /// Threads that do nothing else, and what they do inside.
    fn increments(&self, plan: &mut Plan, who: &Contender, section: &'static str, threads: usize, us: f64) {
        let pinned = threads <= plan.cpus.len();
        let seconds = self.seconds * if pinned { 1.0 } else { 2.0 };
        let Some(turns) = plan.turns(who, threads, (us, 0.0), seconds) else { return };
        let inside = if section == "checked" { Inside::Yield } else { turns.inside };
        // Whoever sleeps is to come to its end; spinners may need many time slices.
        let drain_ns = if who.sleeps { Some(30_000_000_000) } else { turns.drain_ns };
        let task = drive::Task { inside, drain_ns, finish: who.sleeps, ..turns };
        let mut labels = vec![("threads", threads.into())];
        if section == "increments" {
            labels.extend([("pinned", pinned.into()), ("critical_us", us.into())]);
        }
        plan.work(section, format!("{section}, {threads} threads, {us} us"), who, labels, task);
    }
}

impl Preset for Options {
    const TITLE: &'static str = "Mutexes, as OSv's misc-mutex measures them";
    const TARGETS: &'static str = "Targets (they are about handoff, with the policy that it has if none is \
        named; the others for comparison)";

    fn check(&self) -> Result<()> {
        check_run(self.common.rounds, self.seconds, 3600.0)?;
        check_threads(&[self.threads.as_slice(), &[2]].concat(), 2)?;
        check_us("--critical", &[self.critical_us.as_slice(), &[0.0]].concat())
    }

    fn common(&self) -> (usize, Option<usize>) {
        (self.common.rounds, self.common.cpus)
    }

    fn plan(&self, plan: &mut Plan) -> Result<()> {
        let locks = contender::choose(contender::mutexes(), &self.locks, &MUTEX_REFERENCES, "lock")?;
        plan.alone_together("alone", &locks, &[], self.seconds * ALONE, |who| {
            let labels = |what| vec![("operation", key(what).0.into()), ("words", key(what).1.into())];
            let timed = |what| ((who.alone.clone().into_owned(), what), labels(what));
            contender::operations(who.name).into_iter().map(timed).collect()
        });
        for (next, name, words) in
            [(Next::JustCame, "just-came", "came 1 us ago"), (Next::Asleep, "asleep", "sleeps")]
        {
            for who in locks.iter().filter(|who| who.sleeps || next == Next::JustCame) {
                let (Some(lock), &[first, second, ..]) = (who.lock.clone(), plan.cpus.as_slice()) else {
                    continue;
                };
                let labels = vec![("next", name.into()), ("words", words.into())];
                let task = pass::Task { lock, next, cpus: [first, second], duration_ns: ns(self.seconds) };
                plan.pass("passes", format!("hand-off, {name}"), who, labels, task);
            }
        }
        let cpus = plan.cpus.len();
        let mut threads: Vec<usize> = [2, cpus].into_iter().chain(self.threads.iter().copied()).collect();
        threads.retain(|&threads| threads >= 2);
        threads.sort_unstable();
        threads.dedup();
        let mut critical = vec![0.0];
        critical.extend(self.critical_us.iter().filter(|us| **us != 0.0));
        for &us in &critical {
            for &threads in &threads {
                locks.iter().for_each(|who| self.increments(plan, who, "increments", threads, us));
            }
        }
        locks.iter().for_each(|who| self.increments(plan, who, "checked", (2 * cpus).max(4), 0.0));

        let bare = vec![
            ("lock", "cas+exchange".into()),
            ("operation", "lock-unlock".into()),
            ("words", "lock + unlock".into()),
        ];
        plan.of("alone", "of_bare", "ns", bare);
        plan.of("passes", "of_glibc", "pass_ns", vec![("lock", "glibc".into())]);
        for (name, other) in [("of_glibc", "glibc"), ("of_none", "handoff:none"), ("of_qspin", "qspin")] {
            plan.of("increments", name, "ns", vec![("lock", other.into())]);
        }
        plan.of("increments", "faster_than_none", "ns", vec![("lock", "handoff:none".into())])
            .how(|own, none| none / own);
        let policy = |labels: &Vec<(&str, Value)>| {
            let lock = labels.iter().find(|(name, _)| *name == "lock").and_then(|(_, lock)| lock.as_str());
            lock.is_some_and(Contender::is_policy)
        };
        plan.of("increments", "of_best_policy", "ns", vec![])
            .best_of(Contender::is_policy, false)
            .only(policy);
        Ok(())
    }

    fn extra(&self, _rows: &Rows) -> Vec<(&'static str, Value)> {
        let some = |bytes: usize| if bytes == 0 { Value::Null } else { bytes.into() };
        let sizes = sizes().map(|(lock, [plain, recursive, condvar])| {
            json!({"lock": lock, "plain": plain, "recursive": some(recursive), "condvar": some(condvar)})
        });
        let published = PUBLISHED.map(
            |(threads, without, with)| json!({"threads": threads, "without_ns": without, "with_ns": with}),
        );
        vec![("sizes", sizes.to_vec().into()), ("published", published.to_vec().into())]
    }

    fn answer(&self, rows: &Rows) -> Option<String> {
        let row =
            rows.find("increments", "handoff", &[("threads", 2.into()), ("critical_us", 0.0.into())])?;
        let times = row.get("faster_than_none")?;
        Some(format!(
            "Two incrementing threads pass handoff on {:.1} ({:.1}..{:.1}) times as fast with spinning as \
                without: {:.0} ns from one \
             acquisition to the next.",
            times.median,
            times.min,
            times.max,
            row.get("ns")?.median
        ))
    }

    fn method(&self, rows: &Rows) -> String {
        format!(
            "Every lock that we have, and the C library's. That a lock excludes is checked throughout.\n\n\
             One thread: on one CPU, with a second thread alive; everybody in turn in one process. Ours are \
             inlined, as a Rust \
             program has them; the C library's are called through pointers from the dynamic linker.\n\n\
             The hand-off alone: two threads with a CPU each pass the lock to and fro. The owner unlocks \
             when the other has set out \
             to lock a microsecond ago, or when the scheduler says that it sleeps; nobody competes with it. \
             Time from before the \
             unlock to the end of the other's lock, reading the clock included: the median of a run. The \
             hand-off mutex also passes \
             itself on in one thread, by its token and through its queue.\n\n\
             Incrementing threads: each locks, increments a counter, and unlocks; it does nothing else. All \
             locks are called through \
             pointers. Threads are kept on a CPU each where there are no more of them than the {} CPUs used, \
             else wherever the \
             scheduler puts them. Nanoseconds are from one acquisition to the next, whoever's it is. At its \
             end the counter must be \
             what the threads added up.\n\n\
             The checker: each thread yields its CPU inside and looks whether anybody else came. A lock that \
             lets somebody in gives \
             no figures at all.\n\n\
             {:.3} s each, and {:.3} s where threads share the CPUs, after a tenth of that to warm up. {}",
            rows.cpus,
            self.seconds,
            self.seconds * 2.0,
            in_rounds(self.common.rounds, rows)
        )
    }

    fn tables(&self, rows: &Rows) -> Vec<Table> {
        use Column::{Label, Median, Spread};
        let lock = Label("lock", "lock");
        let mut tables = vec![sizes_table(), alone_table(rows)];
        let bare = [
            lock,
            Label("operation", "words"),
            Spread("ns", "ns", 1.0, 2),
            Spread("of compare-and-swap + exchange", "of_bare", 1.0, 2),
        ];
        let own = |row: &&Row| row.is("operation", "by-token") || row.is("operation", "through-queue");
        tables.push(table("The hand-off alone, to the same thread", 2, &bare, rows.of("alone").filter(own)));
        let passes = [
            lock,
            Label("the next owner", "words"),
            Spread("ns", "pass_ns", 1.0, 0),
            Spread("of glibc", "of_glibc", 1.0, 2),
            Spread("the unlock alone ns", "unlock_ns", 1.0, 0),
        ];
        if rows.of("passes").next().is_some() {
            tables.push(table("The hand-off alone, to another thread", 2, &passes, rows.of("passes")));
        }
        let increments = [
            lock,
            Label("threads", "threads"),
            Label("pinned", "pinned"),
            Spread("ns", "ns", 1.0, 1),
            Median("of glibc", "of_glibc", 1.0, 2),
            Median("of handoff:none", "of_none", 1.0, 3),
            Median("of qspin", "of_qspin", 1.0, 2),
            Median("Jain", "jain", 1.0, 2),
            Median("unserved %", "unserved", 100.0, 0),
            Median("CPU ns", "cpu_ns", 1.0, 0),
            Median("sleeps", "voluntary", 1.0, 3),
            Median("preempted", "involuntary", 1.0, 3),
            Median("others", "others", 1.0, 2),
        ];
        for [us] in rows.values("increments", ["critical_us"]) {
            let title = match us.as_f64() {
                Some(us) if us > 0.0 => format!("Incrementing threads that work {us} us inside"),
                _ => "Incrementing threads".to_owned(),
            };
            let here = rows.of("increments").filter(|row| row.label("critical_us") == us);
            tables.push(table(title, 1, &increments, here));
        }
        let checked = [
            lock,
            Label("threads", "threads"),
            Median("sections a round, all undisturbed", "acquisitions", 1.0, 0),
            Spread("ns a section", "ns", 1.0, 0),
        ];
        tables.extend([published_table(rows), policies_table(rows)]);
        tables.push(table("The checker", 1, &checked, rows.of("checked")));
        tables
    }

    fn targets(&self, rows: &Rows) -> Vec<Target> {
        let policies = |threads: usize, us: f64, figure: &'static str| {
            let here = move |row: &&Row| {
                row.is("threads", threads)
                    && row.is("critical_us", us)
                    && Contender::is_policy(row.who)
                    && row.who != "handoff:none"
            };
            rows.of("increments").filter(here).map(move |row| (row.who, row.get(figure)))
        };
        let alone = |row: &&Row| {
            row.is("operation", "lock-unlock") && ["handoff", "handoff-recursive"].contains(&row.who)
        };
        let mut targets = vec![Target::new(
            "one thread: time of a bare compare-and-swap + exchange",
            Limit::AtMost(1.3),
            "",
            rows.of("alone").filter(alone).map(|row| (row.who, row.get("of_bare"))),
        )];
        // They are about threads with a CPU each.
        if rows.cpus >= 2 {
            targets.push(Target::new(
                "2 threads with a CPU each, incrementing: times as fast as without spinning",
                Limit::AtLeast(10.0),
                "",
                policies(2, 0.0, "faster_than_none"),
            ));
            targets.push(Target::new(
                "2 threads with a CPU each, incrementing: time of the queue spinlock",
                Limit::AtMost(1.5),
                "",
                policies(2, 0.0, "of_qspin"),
            ));
        }
        // With more CPUs 20 threads are another matter.
        for [us] in rows.values("increments", ["critical_us"]) {
            let us = us.as_f64().unwrap_or_default();
            if rows.cpus == 2 {
                let title = format!("20 threads, section {us} us: time without spinning");
                targets.push(Target::new(title, Limit::AtMost(1.0), "", policies(20, us, "of_none")));
            }
        }
        targets
    }
}

fn sizes_table() -> Table {
    let mut table = Table::new("Bytes", 1, &["lock", "plain", "recursive", "condition variable"]);
    let dash = |bytes: usize| if bytes == 0 { "-".to_owned() } else { bytes.to_string() };
    table
        .rows
        .extend(sizes().map(|(lock, bytes)| [lock.to_owned()].into_iter().chain(bytes.map(dash)).collect()));
    table
}

/// A line for each lock, and what only the hand-off mutex can do in a table of its own.
fn alone_table(rows: &Rows) -> Table {
    use Column::{Label, Spread};
    let columns = [
        Label("lock", "lock"),
        Spread("lock + unlock ns", "ns", 1.0, 2),
        Spread("of compare-and-swap + exchange", "of_bare", 1.0, 2),
    ];
    let plain = || rows.of("alone").filter(|row| row.is("operation", "lock-unlock"));
    let mut table = table("One thread, ns", 1, &columns, plain());
    table.headings.extend(
        ["once more, held already", "trylock + unlock", "trylock, held by another"].map(str::to_owned),
    );
    for (cells, row) in table.rows.iter_mut().zip(plain()) {
        cells.extend(["again", "trylock", "trylock-held"].map(|operation| {
            let other = rows.find("alone", row.who, &[("operation", operation.into())]);
            median(other.and_then(|row| row.get("ns")), 2)
        }));
    }
    table
}

/// Ours beside the source's, as the source counts.
fn published_table(rows: &Rows) -> Table {
    let title = "Beside the figures that were published for OSv on 4 CPUs: time of one thread's increment, \
        ns (with n \
                 threads, n times that from one acquisition to the next)";
    let headings = [
        "threads",
        "published, not spinning",
        "published, spinning",
        "times as fast",
        "handoff:none",
        "handoff",
        "times as fast as handoff:none",
    ];
    let mut table = Table::new(title, 1, &headings);
    for (threads, without, with) in PUBLISHED {
        let row =
            |lock| rows.find("increments", lock, &[("threads", threads.into()), ("critical_us", 0.0.into())]);
        let ns =
            |lock| median(row(lock).and_then(|row| row.get("ns")).map(|ns| ns.scaled(threads as f64)), 0);
        let pinned = row("handoff").is_none_or(|row| row.is("pinned", true));
        table.rows.push(vec![
            format!("{threads}{}", if pinned { "" } else { " (ours share the CPUs)" }),
            format!("{without:.0}"),
            format!("{with:.0}"),
            format!("{:.1}", without / with),
            ns("handoff:none"),
            ns("handoff"),
            median(row("handoff").and_then(|row| row.get("faster_than_none")), 1),
        ]);
    }
    table
}

/// For choosing the policy: each one at each point, and how far it is behind the best.
fn policies_table(rows: &Rows) -> Table {
    let points = rows.values("increments", ["threads", "critical_us"]);
    let mut headings = vec!["policy".to_owned()];
    let us = |us: &Value| us.as_f64().unwrap_or_default();
    headings
        .extend(points.iter().map(|[threads, critical]| format!("{threads} threads, {} us", us(critical))));
    headings.extend(["worst".to_owned(), "geometric mean".to_owned()]);
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut table =
        Table::new("Policies of the hand-off mutex: ns, and of the best one's at that point", 1, &headings);
    for [policy] in rows.values("increments", ["lock"]) {
        let policy = policy.as_str().unwrap_or_default();
        let at = |[threads, us]: &[Value; 2]| {
            rows.find("increments", policy, &[("threads", threads.clone()), ("critical_us", us.clone())])
        };
        let ratios: Vec<f64> =
            points.iter().filter_map(|point| Some(at(point)?.get("of_best_policy")?.median)).collect();
        let Some(all) = Summary::of(ratios.iter().copied()) else { continue };
        let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / ratios.len() as f64).exp();
        let mut cells = vec![policy.to_owned()];
        cells.extend(points.iter().map(|point| {
            at(point).map_or_else(
                || "-".to_owned(),
                |row| format!("{} ({})", median(row.get("ns"), 0), median(row.get("of_best_policy"), 2)),
            )
        }));
        cells.extend([format!("{:.2}", all.max), format!("{mean:.2}")]);
        table.rows.push(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{by_default, tests::made_up};
    use crate::report::text;

    #[test]
    fn targets_follow_from_the_rows() {
        let figures = made_up(&by_default::<Options>(), 2, |section, who, label| match (section, who) {
            ("alone", "cas+exchange") => 10.0,
            ("alone", _) => 12.0,
            (_, "handoff:none") if label("threads") == 2 => 100.0,
            (_, "handoff:adaptive") => 2400.0,
            (_, "handoff") => 1200.0,
            (_, "qspin") => 1500.0,
            _ => 1000.0,
        });
        assert_eq!(figures.target("one thread", "handoff-recursive"), (1.2, "reached"));
        assert_eq!(
            figures.target("2 threads with a CPU each, incrementing: times", "handoff"),
            (12.0, "reached")
        );
        assert_eq!(
            figures.target("2 threads with a CPU each, incrementing: time of", "handoff"),
            (1.25, "reached")
        );
        assert_eq!(figures.target("20 threads, section 1 us", "handoff"), (0.833, "reached"));
        // The best policy at each point is the adaptive one.
        let json = serde_json::to_value(&figures).unwrap();
        let best = |row: &&Value| row["lock"] == "handoff" && row["threads"] == 4;
        let row = json["increments"].as_array().unwrap().iter().find(best).unwrap();
        assert_eq!(
            (&row["of_best_policy"]["median"], &row["best"]),
            (&2.0.into(), &"handoff:adaptive".into())
        );
        let text = text(&figures.report, false);
        assert!(
            text.contains("Policies of the hand-off mutex") && text.contains("handoff:competitive"),
            "{text}"
        );
    }
}
