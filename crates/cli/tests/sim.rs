//! `poundlock sim`: what it prints, that it prints the same each time, and what it says to bad input.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::browser::{Browser, VIEWS};
use crate::support::{LIMIT, SIM, expect_status, once_a_run, poundlock_bare, run_limited};
use serde_json::Value;

/// Of these words. No path has a space in it.
#[track_caller]
fn output(arguments: &str, limit: u64) -> Output {
    let mut command: Command = poundlock_bare();
    run_limited(command.arg("sim").args(arguments.split_whitespace()), limit)
}

#[track_caller]
fn said(arguments: &str) -> String {
    let output = output(arguments, 2 * LIMIT);
    expect_status(&output, 0);
    let stderr = String::from_utf8(output.stderr).unwrap();
    if arguments.starts_with("run ") || arguments.starts_with("reproduce ") {
        // How fast it was, which is not the same each time.
        assert!(stderr.contains(" simulated accesses in ") && stderr.lines().count() == 1, "{stderr}");
    } else {
        assert_eq!(stderr, "", "{arguments}");
    }
    String::from_utf8(output.stdout).unwrap()
}

/// What a command says of arguments that make no sense.
#[track_caller]
fn refused(arguments: &str) -> String {
    refused_with(2, arguments)
}

/// What a command says as it ends with a status and without output.
#[track_caller]
fn refused_with(status: i32, arguments: &str) -> String {
    let output = output(arguments, LIMIT);
    expect_status(&output, status);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{arguments}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn machines_workloads_tables_and_locks_are_listed() {
    let list = said("list");
    for name in ["westmere-ex-8s", "ivybridge-ex-4s", "numaconnect-512", "phenom-4", "here"] {
        assert!(list.contains(name), "{name}: {list}");
    }
    let others =
        "grid aim7-3.7:high_systime aim7-3.7:short mutex_fserver_jpm poundlock qspin-pv ticket cna cohort";
    for name in others.split(' ') {
        assert!(list.contains(name), "{name}: {list}");
    }
    let levels = said("list epyc-9654-2s");
    assert!(levels.contains("transfer of group 'core complex' = 24.6"), "{levels}");
    let machine = said("list westmere-ex-8s");
    assert!(machine.contains("cores_a_socket = 10"), "{machine}");
    // Each number has a source.
    assert!(machine.lines().skip(3).all(|line| line.split("  ").count() >= 2), "{machine}");
}

#[test]
fn a_seed_fixes_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("figures.json");
    let run = |seed: &str| {
        let what =
            "run --machine westmere-ex-8s --workload grid --lock poundlock,mcs --threads 4-12:8 --time 1";
        let text = said(&format!("{what} --seed {seed} --json {}", file.display()));
        (text, std::fs::read_to_string(&file).unwrap())
    };
    let (first, second, other) = (run("7"), run("7"), run("8"));
    assert_eq!(first, second);
    assert_ne!(first.1, other.1);
    let json: Value = serde_json::from_str(&first.1).unwrap();
    let runs = json["runs"].as_array().unwrap();
    let who: Vec<_> =
        runs.iter().map(|run| (run["threads"].as_u64().unwrap(), run["lock"].as_str().unwrap())).collect();
    assert_eq!(who, [(4, "poundlock"), (4, "mcs"), (12, "poundlock"), (12, "mcs")]);
    for run in runs {
        assert!(run["figures"]["thousands a second"].as_f64().unwrap() > 0.0, "{run}");
    }
}

/// A table's cells, by column, of the row that begins with these words.
#[track_caller]
fn last_cells<'a>(text: &'a str, begins: &str) -> Vec<&'a str> {
    let row = text.lines().find(|line| line.trim_start().starts_with(begins));
    row.unwrap_or_else(|| panic!("{begins}: {text}")).split_whitespace().collect()
}

#[test]
fn a_profile_says_which_words_and_steps_need_transfers() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("figures.json");
    let what = "run --machine ivybridge-ex-4s --workload grid --lock poundlock,mcs --threads 8 --time 2";
    let plain = said(what);
    let text = said(&format!("{what} --profile --json {}", file.display()));
    assert!(text.starts_with(&plain), "{text}");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    for run in json["runs"].as_array().unwrap() {
        let lock = run["lock"].as_str().unwrap();
        let rows = run["profile"].as_array().unwrap();
        let (_, profile) = text.split_once(&format!("\n{lock}, 8 threads: ")).unwrap();
        let totals = last_cells(profile, "all ");
        for (column, figure, key) in [(1, "transfers each", "transfers"), (2, "from afar", "from_afar")] {
            // The rows are the same transfers as the run's figures.
            let figure = run["figures"][figure].as_f64().unwrap();
            let sum: f64 = rows.iter().map(|row| row[key].as_f64().unwrap()).sum();
            assert!((sum - figure).abs() < 1e-6, "{lock}: {sum} {figure}");
            assert_eq!(totals[column], format!("{figure:.2}"), "{lock}");
        }
    }
    let mcs = &text[text.find("\nmcs, 8 threads: ").unwrap()..];
    for row in ["lock tail, line 0", "lock, textbook/src/lib.rs", "lock tail ", "another's state "] {
        assert!(mcs.lines().any(|line| line.trim_start().starts_with(row)), "{row}: {mcs}");
    }
    assert!(mcs.contains("swap in lock, textbook/src/lib.rs:"), "{mcs}");
    assert!(mcs.contains("lock tail swap in lock, "), "{mcs}");
    let jobs = "--workload aim7-3.7:short --lock mcs-queue --threads 4 --profile";
    let line = refused(&format!("run --machine westmere-ex-8s {jobs}"));
    assert!(line.contains("--profile belongs to the workloads 'grid' and 'misc-mutex'"), "{line}");
}

#[test]
fn parts_of_machines_can_be_run_on() {
    let run = |more: &str| {
        let what = "run --machine westmere-ex-8s --workload aim7-3.7:high_systime --lock mcs-queue";
        said(&format!("{what} --threads 20 --time 20 {more}"))
    };
    assert!(run("--sockets 1 --no-smt").contains("10 CPUs of 1 socket,"));
    assert!(run("--sockets 2").contains("40 CPUs of 2 sockets,"));
}

#[test]
fn guests_can_be_run_in() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("figures.json");
    let run = |more: &str| {
        let what = "run --machine phenom-4 --workload grid --lock qspin-pv --threads 8 --time 2 --guest kvm";
        let text = said(&format!("{what} --json {} {more}", file.display()));
        let json: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(json["guest"]["hypervisor"], "kvm");
        (text, json)
    };
    let (text, json) = run("--vcpus 2");
    assert!(text.contains("4 CPUs of 1 socket, a guest of kvm with 2 virtual CPUs,"), "{text}");
    assert_eq!((&json["guest"]["vcpus"], &json["guest"]["pinned"]), (&2.into(), &false.into()));
    let (text, pinned) = run("--pinned");
    assert!(text.contains("a guest of kvm with 4 pinned virtual CPUs,"), "{text}");
    assert_eq!((&pinned["guest"]["vcpus"], &pinned["guest"]["pinned"]), (&4.into(), &true.into()));
    assert_ne!(json["runs"], pinned["runs"]);
}

/// The one that takes least.
const SMALL_TABLE: &str = "osv_mutex";

/// A directory with what several tests look at: a table that is reproduced, as text, as JSON and as a page.
#[track_caller]
fn reproduced() -> PathBuf {
    once_a_run("reproduced", |directory| {
        let [json, page] = ["figures.json", "table.html"].map(|name| directory.join(name));
        // What was there before must be gone, however long it was.
        std::fs::write(&page, "x".repeat(1 << 20)).unwrap();
        let (json, page) = (json.display(), page.display());
        let text = said(&format!("reproduce {SMALL_TABLE} --json {json} --plot {page}"));
        std::fs::write(directory.join("text"), text).unwrap();
    })
}

#[test]
fn a_table_is_reproduced_with_a_word_for_each_figure() {
    let directory = reproduced();
    let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
    let text = read("text");
    let json: Value = serde_json::from_str(&read("figures.json")).unwrap();
    let table = &json[0];
    assert_eq!(table["name"], SMALL_TABLE);
    let rows = table["rows"].as_array().unwrap();
    for row in rows {
        assert_eq!(
            (&row["before"]["fitted"], &row["after"]["fitted"]),
            (&true.into(), &false.into()),
            "{row}"
        );
        let case = row["case"].as_str().unwrap();
        let line = text.lines().find(|line| line.trim_start().starts_with(case)).unwrap();
        assert!(line.contains(" f ") && line.contains(" p "), "{line}");
    }
    assert_eq!(
        (&table["fitted"]["figures"], &table["predicted"]["figures"]),
        (&rows.len().into(), &rows.len().into())
    );
    assert!(text.contains(&format!("fitted: {}, median factor", rows.len())), "{text}");
}

/// Two pages: a table, and lines over numbers of threads. With the words that each must hold.
fn pages(directory: &Path) -> [(String, Vec<&'static str>); 2] {
    let page = directory.join("run.html");
    let run = "run --machine westmere-ex-8s --workload grid --time 1 --threads 1,2,8,40";
    said(&format!("{run} --lock poundlock,mcs,ticket,test-and-set,qspin --plot {}", page.display()));
    [
        (
            std::fs::read_to_string(reproduced().join("table.html")).unwrap(),
            vec![
                SMALL_TABLE,
                "2 threads",
                "4 threads",
                "published before",
                "ours before, fitted",
                "published after",
                "ours after, predicted",
                "<code>poundlock sim reproduce osv_mutex --plot ",
            ],
        ),
        (
            std::fs::read_to_string(page).unwrap(),
            vec![
                "poundlock",
                "mcs",
                "ticket",
                "test-and-set",
                "qspin",
                "thousands a second",
                "threads (logarithmic)",
                "<code>poundlock sim run --machine westmere-ex-8s --workload grid --time 1 --threads \
                    1,2,8,40 --lock \
                 poundlock,mcs,ticket,test-and-set,qspin --plot ",
            ],
        ),
    ]
}

#[test]
fn pages_need_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    for (page, words) in pages(directory.path()) {
        assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
        for word in words {
            assert!(page.contains(word), "{word}: {page}");
        }
        let namespaces = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for word in ["http:", "https:", "url(", "src=", "<script", "@import", "NaN"] {
            assert!(!namespaces.contains(word), "{word}: {page}");
        }
    }
}

/// Looks at a page as it is drawn: charts in the window, words in their chart and not over each other, and
/// colours that can be seen.
const PROBE: &str = r#"
    const wrong = [];
    const check = (right, what) => { if (!right) wrong.push(what); };
    const all = (selector, within = document) => [...within.querySelectorAll(selector)];
    const luminance = colour => {
        const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3)
            .map(value => value / 255)
            .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const paper = luminance(getComputedStyle(document.body).backgroundColor);
    const contrast = colour => {
        const [lighter, darker] = [luminance(colour), paper].sort((a, b) => b - a);
        return (lighter + 0.05) / (darker + 0.05);
    };
    check(document.documentElement.scrollWidth <= innerWidth,
        `the page is ${document.documentElement.scrollWidth} wide`);
    const overlap = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
        && a.top < b.bottom - 1 && b.top < a.bottom - 1;
    for (const chart of all('.chart svg')) {
        const box = chart.getBoundingClientRect();
        check(box.width >= 300 && box.left >= 0 && box.right <= innerWidth, `a chart is ${box.width} wide`);
        const words = all('text', chart)
            .map(text => [text.textContent.trim(), text.getBoundingClientRect(), text]);
        check(words.length >= 4, `${words.length} words in a chart`);
        words.forEach(([word, a, text], index) => {
            check(a.left >= box.left - 1 && a.right <= box.right + 1
                && a.top >= box.top - 1 && a.bottom <= box.bottom + 1,
                `'${word}' reaches out of the chart`);
            check(a.height >= 9, `'${word}' is ${a.height} high`);
            check(contrast(getComputedStyle(text).fill) >= 4.5, `'${word}' cannot be seen`);
            words.slice(index + 1)
                .forEach(([other, b]) => check(!overlap(a, b), `'${word}' over '${other}'`));
        });
        const legend = all('.legend', chart.closest('figure')).map(legend => legend.getBoundingClientRect());
        check(legend.length === 1 && legend[0].height > 0 && legend[0].right <= innerWidth
            && legend[0].top >= box.bottom - 1 && legend[0].top <= box.bottom + 50,
            'no legend just below its chart');
    }
    // A ring is a disc of the paper's colour under a circle.
    for (const mark of all('circle, polygon')) {
        const style = getComputedStyle(mark);
        const colour = style.stroke === 'none' ? style.fill : style.stroke;
        check(contrast(colour) >= 3 || contrast(colour) < 1.01, `a mark is ${colour}`);
    }
    check(performance.getEntriesByType('resource').length === 0, 'something was asked of a network');
    found({ wrong, charts: all('.chart svg').length, legends: all('.legend li svg').length });
"#;

#[test]
fn a_browser_draws_the_pages() {
    let Some(browser) = Browser::installed() else { return };
    let directory = tempfile::tempdir().unwrap();
    let pages = pages(directory.path()).map(|(page, _)| {
        // The page allows no script.
        assert_eq!(page.matches("default-src 'none';").count(), 1);
        page.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';")
    });
    for view in VIEWS {
        for seen in browser.draw(pages.each_ref().map(String::as_str), PROBE, view) {
            assert_eq!(seen.findings["wrong"], Value::Array(vec![]), "{view:?}: {:#}", seen.findings);
            assert_eq!(seen.console, Vec::<String>::new());
            assert_eq!(seen.number("charts"), 1);
            assert!(seen.number("legends") >= 4, "{}", seen.findings);
        }
    }
}

#[test]
fn files_that_cannot_be_written_are_refused_before_anything_is_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("gone").join("file");
    // It would take days.
    let run = "run --machine westmere-ex-8s --workload grid --lock mcs --threads 80 --time 1000000";
    for arguments in [run, "reproduce all"] {
        for option in ["--json", "--plot"] {
            let output = output(&format!("{arguments} {option} {}", path.display()), LIMIT);
            expect_status(&output, 125);
            assert_eq!(output.stdout, b"");
            let line = String::from_utf8(output.stderr).unwrap();
            assert!(line.contains("gone/file: ") && line.lines().count() == 1, "{line}");
        }
    }
}

#[test]
fn what_cannot_be_written_takes_nothing_else_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("page.html");
    let what = SIM[1..].join(" ");
    let output = output(&format!("{what} --json /dev/full --plot {}", file.display()), LIMIT);
    expect_status(&output, 125);
    assert!(String::from_utf8_lossy(&output.stderr).contains("poundlock: /dev/full: "));
    assert!(String::from_utf8_lossy(&output.stdout).contains("mcs"));
    assert!(std::fs::read_to_string(&file).unwrap().contains("</html>"));
}

#[test]
fn this_machine_can_be_measured_described_and_run_on() {
    let description = said("measure");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    std::fs::write(&file, &description).unwrap();
    let what = "--workload grid --lock poundlock --threads 2 --time 1";
    let text = said(&format!("run --machine {} {what}", file.display()));
    assert!(text.contains("grid on here"), "{text}");
}

#[test]
fn predictions_are_compared_with_measurements() {
    let text = said("validate --lock poundlock --threads 1,2 --rounds 1");
    assert!(text.contains("median error"), "{text}");
    assert_eq!(text.lines().filter(|line| line.trim_start().starts_with("poundlock")).count(), 8, "{text}");
}

#[test]
fn bad_input_is_refused_in_a_line() {
    let run = |machine: &str, workload: &str, lock: &str, more: &str| {
        refused(&format!("run --machine {machine} --workload {workload} --lock {lock} --threads 4 {more}"))
    };
    let wrong = [
        ("cray-1", "grid", "mcs", "", ["'cray-1'", "phenom-4"]),
        ("phenom-4", "doom", "mcs", "", ["'doom'", "aim7-3.7:shared"]),
        ("phenom-4", "grid", "musl", "", ["'musl'", "any-negative"]),
        ("phenom-4", "grid", "mcs", "--sockets 2", ["sockets", "between 1 and 1"]),
        ("phenom-4", "grid", "mcs", "--critical=-1", ["--critical", ""]),
        ("phenom-4", "aim7-3.7:shared", "mcs", "--critical 1", ["grid", ""]),
        ("phenom-4", "grid", "mcs", "--guest kvm", ["--vcpus or --pinned", ""]),
        ("phenom-4", "grid", "mcs", "--guest kvm --pinned --vcpus 5", ["4, not 5", ""]),
        ("phenom-4", "grid", "mcs", "--vcpus 2", ["--guest", ""]),
        ("phenom-4", "grid", "mcs", "--pinned", ["--guest", ""]),
    ];
    for (machine, workload, lock, more, words) in wrong {
        let line = run(machine, workload, lock, more);
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
    let no_file = "run --machine nowhere.toml --workload grid --lock mcs --threads 4";
    assert!(refused_with(125, no_file).contains("nowhere.toml"));
    let line = run("phenom-4", "grid", "mcs", "--guest qemu --vcpus 2");
    assert!(line.contains("'qemu'") && line.contains("kvm") && line.lines().count() == 1, "{line}");
    let line = refused("reproduce table");
    assert!(line.contains("'table'") && line.contains("mutex_fserver_jpm"), "{line}");
    let unmodelled = refused("reproduce osv_ycsb_workloadf");
    assert!(unmodelled.contains("Cassandra"), "{unmodelled}");
    for line in [line, unmodelled, refused("list cray-1")] {
        assert_eq!(line.lines().count(), 1, "{line}");
    }
    let line = refused("run --machine phenom-4 --workload grid --lock mcs --threads 4-2");
    assert!(line.contains("ends before it begins"), "{line}");
}

#[test]
fn a_machine_file_that_makes_no_sense_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("odd.toml");
    for (text, word) in [("sockets = 1", "missing field"), ("sockets = ", "odd.toml")] {
        std::fs::write(&file, text).unwrap();
        let name = file.display();
        let line = refused_with(125, &format!("run --machine {name} --workload grid --lock mcs --threads 1"));
        assert!(line.contains(word), "{line}");
    }
}
