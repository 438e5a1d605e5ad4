//! Spinlocks under `run` and `stat`: whose they are, and what is counted of them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use crate::support::{
    LIMIT, expect_status, line_of, list, measured, number, poundlock, poundlock_bare, preload_library,
    program, run_limited, scratch, stack, stderr, stdout,
};
use poundlock_core::events::{Event, Family};
use poundlock_core::qspin::Form;
use poundlock_linux::machine;
use poundlock_names::Named;
use serde_json::Value;

/// `program THREADS ROUNDS`: each thread takes `locks[0]` ROUNDS times and tries for `locks[1]` as often; a
/// third lock is shared with other processes, a fourth is on the heap. At the end it prints how often each
/// was acquired.
const BUSY: &str = r#"
static pthread_spinlock_t locks[3];
static pthread_spinlock_t *heap;
static unsigned long counts[4];
static int rounds;

__attribute__((noinline)) static void one(void) {
    pthread_spin_lock(&locks[0]); /* WAIT */
    counts[0]++;
    pthread_spin_unlock(&locks[0]);
}

static void *work(void *unused) {
    for (int i = 0; i < rounds; i++) {
        one();
        int error = pthread_spin_trylock(&locks[1]);
        if (error == 0) {
            counts[1]++;
            CALL(pthread_spin_trylock(&locks[1]), EBUSY);
            pthread_spin_unlock(&locks[1]);
        } else {
            CHECK(error == EBUSY, "trylock: %d", error);
        }
        if (i % 10 == 0) {
            pthread_spin_lock(&locks[2]);
            counts[2]++;
            pthread_spin_unlock(&locks[2]);
        }
        if (i % 5 == 0) {
            pthread_spin_lock(heap);
            counts[3]++;
            pthread_spin_unlock(heap);
        }
    }
    return unused;
}

int main(int argc, char **argv) {
    int n = atoi(argv[1]);
    rounds = atoi(argv[2]);
    heap = malloc(sizeof *heap);
    pthread_spin_init(&locks[0], PTHREAD_PROCESS_PRIVATE); /* INIT */
    pthread_spin_init(&locks[1], PTHREAD_PROCESS_PRIVATE);
    pthread_spin_init(&locks[2], PTHREAD_PROCESS_SHARED); /* SHARED */
    pthread_spin_init(heap, PTHREAD_PROCESS_PRIVATE); /* HEAP */
    crowd(n, work);
    for (int i = 0; i < 3; i++) pthread_spin_destroy(&locks[i]);
    pthread_spin_destroy(heap);
    printf("%lu %lu %lu %lu\n", counts[0], counts[1], counts[2], counts[3]);
}
"#;

/// `program WAITERS END [FILE]`: main holds `lock` until so many others sleep, waiting for it. Then, by END:
///
/// * `exit`: lets them have it once each;
/// * `kill`: lets them take it over and over, counting in FILE, and kills the process when it was taken often
///   enough.
const WAITERS: &str = r#"
static pthread_spinlock_t lock;
static volatile pid_t tids[64];
static volatile unsigned long *taken;
static int again;

__attribute__((noinline)) static void wait_for_it(void) {
    pthread_spin_lock(&lock); /* WAIT */
    ++*taken;
    pthread_spin_unlock(&lock);
}

static void *waiter(void *argument) {
    announce(&tids[(long)argument]);
    do wait_for_it(); while (again);
    return NULL;
}

int main(int argc, char **argv) {
    static unsigned long here;
    int n = atoi(argv[1]);
    pthread_t threads[n];
    taken = &here;
    again = strcmp(argv[2], "kill") == 0;
    if (again) {
        int file = open(argv[3], O_RDWR | O_CREAT, 0600);
        SYS(file);
        SYS(ftruncate(file, sizeof *taken));
        taken = mmap(NULL, sizeof *taken, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        CHECK(taken != MAP_FAILED, "mmap: %s", strerror(errno));
    }
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
    pthread_spin_lock(&lock);
    ++*taken;
    for (long i = 0; i < n; i++) threads[i] = spawn(waiter, (void *)i);
    for (int i = 0; i < n; i++) await_asleep(&tids[i]);
    pthread_spin_unlock(&lock);
    if (again) {
        while (*taken < 5000) usleep(1000);
        kill(getpid(), SIGKILL);
    }
    for (int i = 0; i < n; i++) join(threads[i]);
    return 0;
}
"#;

/// Runs `program` under `stat` on this lock.
#[track_caller]
fn stat(lock: &str, program: &Path, arguments: &[&str], status: i32) -> (String, String, Value) {
    let program = program.to_str().expect("UTF-8");
    let behind: Vec<_> = [&["--", program][..], arguments].concat().into_iter().map(OsStr::new).collect();
    measured(poundlock().args(["stat", "--lock", lock]), &behind, status)
}

/// The locks of which it holds.
fn locks(document: &Value, wanted: impl Fn(&Value) -> bool) -> Vec<&Value> {
    list(document, "locks").iter().filter(|lock| wanted(lock)).collect()
}

#[track_caller]
fn only(document: &Value, wanted: impl Fn(&Value) -> bool) -> &Value {
    let found = locks(document, wanted);
    assert_eq!(found.len(), 1, "{document:#}");
    found[0]
}

fn variable(name: &str) -> impl Fn(&Value) -> bool {
    move |lock| lock["variable"] == format!("{name} (in program)")
}

fn made_at(line: String) -> impl Fn(&Value) -> bool {
    move |lock| lock["created_at"].as_str().is_some_and(|at| at.ends_with(&line))
}

/// The events of a report, by name.
struct Events(BTreeMap<String, u64>);

impl Events {
    /// Checks what holds for all of them, whatever happened: the schema, the table, and what cannot be more
    /// than what.
    #[track_caller]
    fn of(document: &Value, table: &str) -> Events {
        let mut counts = BTreeMap::new();
        let threads = number(document, "threads");
        for event in list(document, "events") {
            let (count, most) = (number(event, "count"), number(event, "most"));
            assert!(most <= count && count <= most * threads, "{event:#}");
            let name = event["name"].as_str().expect("events have names");
            let words = [name, &count.to_string(), &most.to_string()].join(" ");
            let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            let of_spinlocks =
                Event::ALL.iter().any(|event| event.name() == name && event.family() == Family::Spinlock);
            let shown = table.lines().any(|line| squeezed(line) == words);
            assert!(shown == of_spinlocks, "{words:?} in\n{table}");
            assert!(of_spinlocks || count == 0, "nothing here is a lock of another sort: {event:#}");
            counts.insert(name.to_string(), count);
        }
        for duration in list(document, "durations") {
            let (count, time) = (number(duration, "count"), &duration["ns"]);
            let (total, max) = (number(time, "total"), number(time, "max"));
            let buckets = list(duration, "buckets");
            let sum = |of: &dyn Fn(&Value) -> u64| buckets.iter().map(of).sum::<u64>();
            assert_eq!(sum(&|bucket| number(bucket, "count")), count, "{duration:#}");
            assert!(total >= sum(&|b| number(b, "from_ns") * number(b, "count")), "{duration:#}");
            assert!(total <= sum(&|b| number(b, "to_ns") * number(b, "count")), "{duration:#}");
            if let Some(last) = buckets.last() {
                assert!((number(last, "from_ns")..number(last, "to_ns")).contains(&max), "{duration:#}");
            }
            let name = duration["name"].as_str().expect("durations have names");
            let title = format!("{name}: {count} times, average ");
            assert_eq!(table.contains(&title), count > 0, "{title:?} in\n{table}");
            counts.insert(name.to_string(), count);
        }
        let events = Events(counts);
        if events.0.is_empty() {
            assert!(!table.contains("queue spinlock events"), "{table}");
            return events;
        }
        assert!(table.contains("queue spinlock events"), "{table}");
        assert_eq!(events.0.len(), Event::ALL.len(), "{document:#}");
        let get = |event| events.get(event);
        let queued = get(Event::Level1) + get(Event::Level2) + get(Event::Level3) + get(Event::Level4);
        let waits: u64 = list(document, "locks").iter().map(|lock| number(lock, "contended")).sum();
        assert!(get(Event::PendingHit) + queued + get(Event::NoNode) <= get(Event::SlowPath), "{events}");
        assert!(get(Event::SlowPath) <= waits, "{events}");
        assert!(get(Event::WaitEarly) <= get(Event::WaitNode), "{events}");
        assert!(get(Event::WaitAgain) <= get(Event::WaitHead) + get(Event::WaitNode), "{events}");
        assert!(get(Event::KickUnlock) <= get(Event::WaitHead) + get(Event::HashedByPasser), "{events}");
        // The woken may count before the kicker, who may be killed in between.
        assert!(get(Event::WakeLatency) <= get(Event::KickUnlock) + threads, "{events}");
        events
    }

    fn get(&self, event: Event) -> u64 {
        self.0.get(event.name()).copied().unwrap_or_else(|| panic!("no {:?} in {self}", event.name()))
    }

    /// In a process that ended between two events, not in the middle of what makes two.
    #[track_caller]
    fn check_whole(&self) {
        assert_eq!(self.get(Event::KickLatency), self.get(Event::KickUnlock), "{self}");
        assert!(self.get(Event::WakeLatency) <= self.get(Event::KickUnlock), "{self}");
    }
}

impl std::fmt::Display for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#?}", self.0)
    }
}

#[test]
fn every_acquisition_of_a_spinlock_is_counted() {
    let busy = program(BUSY);
    let few = "2";
    // Forms whose waiters keep their CPUs take time slices when there are more threads than CPUs: few rounds
    // of few.
    for (lock, threads, rounds) in [
        ("qspin-pv", "8", "4000"),
        ("any-negative", "64", "500"),
        ("qspin-virt", "8", "1000"),
        ("baseline,qspin", few, "1000"),
        ("glibc,qspin-pv", "8", "1000"),
        ("glibc", few, "1000"),
    ] {
        let (printed, table, document) = stat(lock, &busy, &[threads, rounds], 0);
        assert_eq!(document["lock"], lock);
        let form = lock.split(',').find(|name| Form::parse(name).is_some());
        let form = form.unwrap_or(if lock == "glibc" { lock } else { machine::spinlock().name() });
        assert_eq!(document["spinlock"], form);
        // A spinlock's name alone leaves the mutex to us: it is said which one that was.
        let mutex = lock.split(',').find(|name| Form::parse(name).is_none()).unwrap_or("poundlock");
        assert_eq!(document["mutex"], mutex);
        assert!(table.contains(&format!("locks measured: mutex {mutex}")), "{table}");
        assert!(table.contains(&format!(", spinlock {form}")), "{table}");
        let counts: Vec<u64> =
            printed.split_whitespace().map(|count| count.parse().expect("a number")).collect();
        assert_eq!(counts.len(), 4, "{printed}");
        let found = [
            only(&document, variable("locks[0]")),
            only(&document, variable("locks[1]")),
            only(&document, variable("locks[2]")),
            only(&document, made_at(line_of(BUSY, "/* HEAP */"))),
        ];
        for (lock, count) in found.iter().zip(&counts) {
            assert_eq!(number(lock, "acquisitions"), *count, "{lock:#}");
            assert_eq!(lock["kind"], "spinlock");
            assert!(number(&lock["hold_ns"], "total") >= number(&lock["hold_ns"], "max"), "{lock:#}");
            let waits: u64 = list(lock, "sites").iter().map(|site| number(site, "contended")).sum();
            assert_eq!(waits, number(lock, "contended"), "every wait has its place: {lock:#}");
            // The table leaves out some of those that nobody waited for.
            assert!(waits == 0 || table.contains(&count.to_string()), "{table}");
        }
        // Trying is not waiting.
        assert_eq!(number(found[1], "contended"), 0);
        assert!(made_at(line_of(BUSY, "/* INIT */"))(found[0]), "{:#}", found[0]);
        assert!(made_at(line_of(BUSY, "/* SHARED */"))(found[2]), "{:#}", found[2]);
        assert!(table.contains("a spinlock"), "{table}");
        for site in list(found[0], "sites") {
            let frame = stack(&document, site)[0];
            assert!(frame.starts_with("one (") && frame.ends_with(&line_of(BUSY, "/* WAIT */")), "{site:#}");
        }
        let events = Events::of(&document, &table);
        if lock == "glibc" {
            assert!(events.0.is_empty(), "{events}");
        } else if !events.0.is_empty() {
            events.check_whole();
        }
        if !lock.contains("qspin-pv") && lock != "any-negative" && !events.0.is_empty() {
            assert_eq!(events.get(Event::WaitHead) + events.get(Event::KickUnlock), 0, "{lock}: {events}");
        }
    }
}

#[test]
fn waiters_that_halt_are_kicked_and_both_are_counted() {
    let waiters = program(WAITERS);
    for n in [1, 8, 40] {
        let (_, table, document) = stat("qspin-pv", &waiters, &[&n.to_string(), "exit"], 0);
        let lock = only(&document, variable("lock"));
        assert_eq!((number(lock, "acquisitions"), number(lock, "contended")), (n + 1, n), "{lock:#}");
        // Main saw each of them sleep three times, 200 us apart, and held the lock all the while.
        assert!(number(&lock["wait_ns"], "total") >= n * 600_000, "{lock:#}");
        assert!(number(&lock["hold_ns"], "max") >= n * 600_000, "{lock:#}");
        let sites = list(lock, "sites");
        assert_eq!(sites.len(), 1, "{lock:#}");
        let stack = stack(&document, &sites[0]);
        assert!(stack[0].starts_with("wait_for_it ("), "{stack:?}");
        assert!(stack[0].ends_with(&line_of(WAITERS, "/* WAIT */")), "{stack:?}");
        assert!(stack[1].starts_with("waiter ("), "{stack:?}");

        let events = Events::of(&document, &table);
        events.check_whole();
        assert_eq!(events.get(Event::SlowPath), n, "{events}");
        assert_eq!(events.get(Event::Level1), n, "all of them went to sleep, so they had queued: {events}");
        // The head halts by itself; those behind it do, too.
        assert!(events.get(Event::WaitHead) >= 1, "{events}");
        assert!(events.get(Event::WaitNode) >= n - 1, "{events}");
        assert!(events.get(Event::KickUnlock) >= 1 && events.get(Event::WakeLatency) >= 1, "{events}");
    }
}

#[test]
fn counters_survive_a_sudden_death() {
    let waiters = program(WAITERS);
    for _ in 0..3 {
        let file = scratch().join("taken");
        let arguments = ["8", "kill", file.to_str().expect("UTF-8")];
        let (_, table, document) = stat("qspin-pv", &waiters, &arguments, 128 + 9);
        let bytes = std::fs::read(&file).expect("the program made it");
        let taken = u64::from_ne_bytes(bytes.try_into().expect("a number"));
        assert!(taken >= 5000);
        let lock = only(&document, variable("lock"));
        // Both are counted by the holder, ours first.
        assert!((taken..=taken + 1).contains(&number(lock, "acquisitions")), "{taken}, {lock:#}");
        assert!(number(lock, "contended") >= 8, "{lock:#}");
        let events = Events::of(&document, &table);
        assert!(events.get(Event::KickUnlock) >= 1 && events.get(Event::SlowPath) >= 8, "{events}");
        // The process may have died between any kick and its latency.
        let (kicks, latencies) = (events.get(Event::KickUnlock), events.get(Event::KickLatency));
        assert!(latencies <= kicks && kicks <= latencies + 9, "{events}");
    }
}

#[test]
fn a_forked_child_counts_its_own() {
    let forks = program(
        r#"
        static pthread_spinlock_t lock;
        static volatile pid_t tid;
        static void *waiter(void *unused) {
            announce(&tid);
            pthread_spin_lock(&lock);
            pthread_spin_unlock(&lock);
            return unused;
        }
        static void take(int n) {
            for (int i = 0; i < n; i++) {
                pthread_spin_lock(&lock);
                pthread_spin_unlock(&lock);
            }
        }
        int main(void) {
            pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE); /* INIT */
            take(100);
            pthread_spin_lock(&lock);
            pid_t child = fork_limited(60);
            if (child == 0) {
                pthread_t thread = spawn(waiter, NULL);
                await_asleep(&tid);
                pthread_spin_unlock(&lock);
                join(thread);
                take(250);
                exit(0);
            }
            pthread_spin_unlock(&lock);
            await_child(child);
            take(10);
            return 0;
        }
        "#,
    );
    let (_, table, document) = stat("qspin-pv", &forks, &[], 0);
    assert_eq!(list(&document, "processes").len(), 2);
    let found = locks(&document, variable("lock"));
    assert_eq!(found.len(), 2, "{document:#}");
    let mut figures: Vec<_> = found
        .iter()
        .map(|lock| {
            assert_eq!(lock["kind"], "spinlock");
            assert!(lock["created_at"].as_str().is_some_and(|at| at.starts_with("main (")), "{lock:#}");
            (number(lock, "acquisitions"), number(lock, "contended"), number(lock, "pid"))
        })
        .collect();
    figures.sort_unstable();
    assert_eq!((figures[0].0, figures[0].1), (111, 0), "the parent: {document:#}");
    assert_eq!((figures[1].0, figures[1].1), (251, 1), "the child: {document:#}");
    assert_ne!(figures[0].2, figures[1].2);
    // The child's only.
    let events = Events::of(&document, &table);
    events.check_whole();
    assert_eq!((events.get(Event::SlowPath), events.get(Event::KickUnlock)), (1, 1), "{events}");
}

/// Prints the word of a spinlock when it is initialised: ours bear a mark, glibc's is 1. Then takes and
/// destroys many, some of them freed without being destroyed.
const WORDS: &str = r#"
int main(void) {
    pthread_spinlock_t lock, shared;
    pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
    pthread_spin_init(&shared, PTHREAD_PROCESS_SHARED);
    printf("%x %x\n", (unsigned)lock, (unsigned)shared);
    for (int round = 0; round < 20000; round++) {
        pthread_spinlock_t *some = malloc(4 * sizeof *some);
        for (int i = 0; i < 4; i++) pthread_spin_init(&some[i], i % 2);
        for (int i = 0; i < 4; i++) OK(pthread_spin_lock(&some[i]));
        for (int i = 0; i < 4; i++) CALL(pthread_spin_trylock(&some[i]), EBUSY);
        for (int i = 0; i < 4; i++) OK(pthread_spin_unlock(&some[i]));
        if (round % 2) for (int i = 0; i < 4; i++) OK(pthread_spin_destroy(&some[i]));
        free(some);
    }
}
"#;

#[test]
fn a_spinlock_is_whose_it_was_asked_to_be() {
    let words = program(WORDS);
    let by_run = |lock: &str| {
        let output = run_limited(poundlock().args(["run", "--lock", lock, "--"]).arg(&words), LIMIT);
        expect_status(&output, 0);
        stdout(&output)
    };
    for lock in ["qspin", "qspin-virt", "qspin-pv", "any-negative", "glibc,qspin", "qspin,baseline"] {
        assert_eq!(by_run(lock), "8000 1\n", "{lock}");
    }
    assert_eq!(by_run("glibc"), "1 1\n");
    // By hand, and with names that nobody knows: then it runs on the defaults.
    for (value, expected) in [
        (Some("qspin"), "8000 1\n"),
        (Some("glibc"), "1 1\n"),
        (Some("glibc,qspin-virt"), "8000 1\n"),
        (Some("qspin,qspin-pv"), "8000 1\n"),
        (Some("nonesuch"), "8000 1\n"),
        (None, "8000 1\n"),
    ] {
        let mut cmd = Command::new(&words);
        cmd.env("LD_PRELOAD", preload_library()).env_remove("POUNDLOCK_LOCK");
        if let Some(value) = value {
            cmd.env("POUNDLOCK_LOCK", value);
        }
        let output = run_limited(&mut cmd, LIMIT);
        expect_status(&output, 0);
        assert_eq!(stdout(&output), expected, "{value:?}");
    }
    // Counted ones bear another mark; what glibc's are does not change.
    let acquired = 20000 * 4;
    for (lock, expected) in [("qspin", "8400 1\n"), ("glibc", "1 1\n")] {
        let (printed, _, document) = stat(lock, &words, &[], 0);
        assert_eq!(printed, expected, "{lock}");
        let sum: u64 = list(&document, "locks").iter().map(|lock| number(lock, "acquisitions")).sum();
        assert_eq!(sum, acquired, "{document:#}");
        assert_eq!(number(&document, "dropped_locks"), 0, "{document:#}");
    }
}

#[test]
fn the_environment_alone_forces_the_form() {
    // Main holds the lock until its word says that somebody waits: with the pending bit, or in the queue;
    // with an argument, until the waiter sleeps.
    let waits = program(
        r#"
        static pthread_spinlock_t lock;
        static volatile pid_t tid;
        static void *waiter(void *unused) {
            announce(&tid);
            pthread_spin_lock(&lock);
            pthread_spin_unlock(&lock);
            return unused;
        }
        int main(int argc, char **argv) {
            (void)argv;
            pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
            pthread_spin_lock(&lock);
            pthread_t thread = spawn(waiter, NULL);
            while (!(*(volatile unsigned *)&lock & 0xffff0100)) usleep(1000);
            if (argc > 1) await_asleep(&tid);
            pthread_spin_unlock(&lock);
            join(thread);
            return 0;
        }
        "#,
    );
    let run = |value: &str, arguments: &[&str]| {
        let dir = scratch();
        let mut cmd = Command::new(&waits);
        cmd.args(arguments)
            .env("LD_PRELOAD", preload_library())
            .env("POUNDLOCK_LOCK", value)
            .env("POUNDLOCK_STAT_DIR", &dir);
        expect_status(&run_limited(&mut cmd, LIMIT), 0);
        let file =
            std::fs::read_dir(&dir).expect("it is there").next().expect("a file").expect("an entry").path();
        poundlock_statfile::read(&file, u64::MAX).expect("a good file")
    };
    let native = run("qspin", &[]);
    assert_eq!(native.lock, "qspin");
    let of = |snapshot: &poundlock_statfile::Snapshot, event: Event| snapshot.events[event as usize].total;
    assert_eq!((of(&native, Event::SlowPath), of(&native, Event::PendingHit)), (1, 1));
    assert_eq!((of(&native, Event::WaitHead), of(&native, Event::KickUnlock)), (0, 0));
    let paravirtual = run("qspin-pv,baseline", &["halts"]);
    assert_eq!(paravirtual.lock, "qspin-pv,baseline");
    assert_eq!((of(&paravirtual, Event::SlowPath), of(&paravirtual, Event::PendingHit)), (1, 0));
    // The first head that ever halts in a lock looks for itself now and then.
    assert!(of(&paravirtual, Event::WaitHead) >= 1);
    assert_eq!(of(&paravirtual, Event::KickUnlock), 1);
}

#[test]
fn a_choice_of_locks_that_is_none_is_refused_in_one_line() {
    for (choice, words) in [
        ("qspin,nonesuch", &["'nonesuch'", "qspin-pv", "any-negative"][..]),
        ("any-negative,baseline", &["'baseline'", "at most one mutex and one spinlock"]),
        ("qspin,qspin-pv", &["'qspin-pv'", "at most one mutex and one spinlock"]),
        ("qspin,", &["''", "qspin-pv"]),
        ("", &["''", "qspin-pv"]),
    ] {
        for sub in ["run", "stat"] {
            let output = run_limited(poundlock_bare().args([sub, "--lock", choice, "--", "echo"]), LIMIT);
            expect_status(&output, 2);
            let text = stderr(&output);
            assert!(text.starts_with("poundlock: ") && text.lines().count() == 1, "{text}");
            assert!(output.stdout.is_empty(), "it ran");
            for word in words {
                assert!(text.contains(word), "no {word:?} in {text:?}");
            }
        }
    }
}

#[test]
fn the_machines_spinlock_is_listed_as_such() {
    let output = run_limited(poundlock_bare().arg("locks"), LIMIT);
    expect_status(&output, 0);
    let text = stdout(&output);
    let chosen: Vec<&str> = text.lines().filter(|line| line.contains("(chosen for this machine: ")).collect();
    let machines = machine::spinlock().name();
    assert!(chosen.len() == 1 && chosen[0].split_whitespace().next() == Some(machines), "{text}");
    let default: Vec<&str> = text.lines().filter(|line| line.ends_with("(default)")).collect();
    assert!(default.len() == 1 && default[0].starts_with("poundlock "), "{text}");
}
