//! The page of `poundlock stat --html`, and what the JSON has of it: who waited when, and threads by name.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use crate::support::browser::{Browser, VIEWS};
use crate::support::{
    LIMIT, expect_status, list, number, poundlock, program, run_limited, scratch, start, until,
};

/// One thread holds a lock, and three wait for it, until standard input ends.
const HOLDER: &str = include_str!("../../../tests/stat/holder.c");

/// As many samples of three waiting threads take longer than several pieces of the timeline.
const MANY: u64 = 200;

/// The page and the JSON of a run that goes on until it was looked at often enough.
#[track_caller]
fn report() -> (String, Value) {
    let (page, json) = (scratch().join("report.html"), scratch().join("report.json"));
    let mut cmd = poundlock();
    cmd.env("COLUMNS", "400").args(["stat", "--every", "0.2", "--html"]).arg(&page).arg("--json").arg(&json);
    let mut started = start(cmd.arg("--").arg(program(HOLDER)).arg("read").stdin(Stdio::piped()));
    let samples = |text: &str| {
        let line = text.lines().rev().find(|line| line.contains("  waiting for locks ("))?;
        line.split_once("%, ")?.1.split(' ').next()?.parse().ok()
    };
    until("it was looked at often enough", || samples(&started.errors_so_far()).unwrap_or(0) >= MANY);
    started.write_input(b"");
    expect_status(&started.finish(LIMIT), 0);
    let text = std::fs::read_to_string(json).expect("the JSON is there");
    let document = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (std::fs::read_to_string(page).expect("the page is there"), document)
}

fn sum(list: &Value) -> u64 {
    list.as_array().expect("a list").iter().map(|ns| ns.as_u64().expect("a number")).sum()
}

#[test]
fn who_waited_and_who_had_it_is_known_over_time() {
    let (page, document) = report();
    let timeline = &document["timeline"];
    let pieces = list(timeline, "watched_ns").len();
    assert!((3..=240).contains(&pieces), "{timeline:#}");
    assert!(sum(&timeline["watched_ns"]) <= number(timeline, "piece_ns") * pieces as u64, "{timeline:#}");
    let [class] = list(timeline, "classes") else { panic!("one lock: {timeline:#}") };
    let of = &document["classes"][number(class, "class") as usize];
    assert_eq!(of["name"], "lock (in program)", "{of:#}");
    let waiting = sum(&class["waiting_ns"]);
    assert_eq!(list(class, "waiting_ns").len(), pieces);
    // Three waited nearly all the time, one of them or none for what was left when input ended.
    let holder = &class["holders"][0];
    assert!(sum(&holder["ns"]) > waiting / 10 * 9, "{class:#}");
    assert!(holder["at"].as_str().expect("a line").starts_with("holder ("), "{class:#}");
    assert!(holder["threads"].as_str().expect("a name").starts_with("thread "), "{class:#}");
    assert_eq!(class["waiters"][0]["threads"], "threads program", "{class:#}");
    assert!(page.contains("aria-label=\"Threads that waited for lock (in program) over time\""), "{page}");
    assert!(page.contains(" threads waited; had by thread "), "{page}");

    // The main thread waits for the others to end; of those each waited once, but for the holder.
    let roles = list(&document, "roles");
    let role =
        |name: &str| roles.iter().find(|role| role["name"] == name).unwrap_or_else(|| panic!("{roles:#?}"));
    let (main, others) = (role("main thread"), role("program"));
    assert_eq!((number(main, "threads"), number(main, "lock_waits")), (1, 0), "{roles:#?}");
    assert_eq!((number(others, "threads"), number(others, "lock_waits")), (4, 3), "{roles:#?}");
    let joining = number(main, "conditions_ns") + number(main, "idle_ns");
    assert!(joining > 0 && number(others, "locks_ns") > 0, "{roles:#?}");
    let most = list(others, "most");
    assert_eq!(most.iter().map(|one| number(one, "lock_waits")).sum::<u64>(), 3, "{roles:#?}");
}

/// Words that cannot be read, reach out of their picture, or make the page wider than the window.
const PROBE: &str = r#"
    const wrong = [];
    const check = (holds, words) => { if (!holds) wrong.push(words) };
    const luminance = colour => {
        const [r, g, b] = colour.match(/[\d.]+/g).slice(0, 3)
            .map(value => value / 255)
            .map(value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    check(document.documentElement.scrollWidth <= innerWidth,
        `the page is ${document.documentElement.scrollWidth} wide`);
    const pictures = [...document.querySelectorAll('figure > svg')];
    for (const picture of pictures) {
        const box = picture.getBoundingClientRect();
        check(box.width >= 250 && box.left >= 0 && box.right <= innerWidth, `a picture is ${box.width} wide`);
        for (const text of picture.querySelectorAll('text')) {
            const at = text.getBoundingClientRect();
            check(at.height >= 9 && at.bottom <= box.bottom + 2, `'${text.textContent}' is cut`);
            check(picture.matches('.flame') || at.right <= box.right + 2, `'${text.textContent}' is wide`);
            const ground = text.parentElement.querySelector('rect');
            const paper = picture.matches('.flame') ? getComputedStyle(ground).fill
                : getComputedStyle(document.body).backgroundColor;
            const [lighter, darker] = [getComputedStyle(text).fill, paper].map(luminance).sort((a, b) => b - a);
            check((lighter + 0.05) / (darker + 0.05) >= 4.5, `'${text.textContent}' cannot be seen`);
        }
    }
    for (const cell of document.querySelectorAll('.rows td, .rows th')) {
        const at = cell.getBoundingClientRect();
        check(innerWidth > 736 || at.right <= innerWidth, `'${cell.textContent}' lies beside the page`);
    }
    check(performance.getEntriesByType('resource').length === 0, 'something was asked of a network');
    found({ wrong, pictures: pictures.length });
"#;

#[test]
fn a_browser_draws_the_page_of_a_run() {
    let Some(browser) = Browser::installed() else { return };
    let (page, _) = report();
    // The page allows no script.
    assert_eq!(page.matches("default-src 'none';").count(), 1);
    let page = page.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';");
    for view in VIEWS {
        let [seen] = browser.draw([page.as_str()], PROBE, view);
        assert_eq!(seen.findings["wrong"], Value::Array(vec![]), "{view:?}: {:#}", seen.findings);
        assert_eq!(seen.console, Vec::<String>::new());
        // The lock over time, its stacks, its waits and holds; and the wait for the threads' end.
        assert!(seen.number("pictures") >= 4, "{}", seen.findings);
    }
}

#[test]
fn a_run_that_is_too_short_says_so() {
    let page = scratch().join("report.html");
    let source = "
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        int main(void) {
            MUST(pthread_mutex_lock(&lock));
            MUST(pthread_mutex_unlock(&lock));
            return 0;
        }";
    let mut cmd = poundlock();
    cmd.args(["stat", "--html"]).arg(&page).arg("--").arg(program(source));
    expect_status(&run_limited(&mut cmd, LIMIT), 0);
    let text = std::fs::read_to_string(&page).expect("the page is there");
    assert!(text.contains("There is nothing to draw: the threads were looked at"), "{text}");
    let mut cmd = poundlock();
    cmd.args(["stat", "--html"]).arg(&page).args(["--", "true"]);
    expect_status(&run_limited(&mut cmd, LIMIT), 0);
    let text = std::fs::read_to_string(page).expect("the page is there");
    assert!(text.contains("No lock that is counted was used.") && !text.contains("<figure"), "{text}");
}

/// A thread has the name that it has at the end, wherever a report tells of what it did before.
#[test]
fn threads_that_rename_themselves_have_one_name() {
    let source = r#"
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static void await_input(void) {
            char byte;
            if (read(0, &byte, 1) < 0) abort();
        }
        static void *waiter(void *unused) {
            MUST(pthread_setname_np(pthread_self(), "early"));
            MUST(pthread_mutex_lock(&lock));
            MUST(pthread_mutex_unlock(&lock));
            MUST(pthread_setname_np(pthread_self(), "late"));
            await_input();
            return unused;
        }
        int main(void) {
            MUST(pthread_mutex_lock(&lock));
            pthread_t thread = spawn(waiter, NULL);
            await_input();
            MUST(pthread_mutex_unlock(&lock));
            join(thread);
            return 0;
        }"#;
    let (page, json) = (scratch().join("report.html"), scratch().join("report.json"));
    let mut cmd = poundlock();
    cmd.env("COLUMNS", "400").args(["stat", "--long", "--every", "0.2", "--html"]).arg(&page);
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    cmd.arg("--json").arg(&json).arg("--").arg(program(source));
    let mut running = start(cmd.stdin(reader));
    drop(cmd);
    running.wait_for_error("(early)", LIMIT);
    writer.write_all(b"x").expect("main reads it");
    running.wait_for_error("(late of program", LIMIT);
    drop(writer);
    expect_status(&running.finish(LIMIT), 0);
    let read = |path| std::fs::read_to_string(path).expect("it is there");
    for text in [read(json), read(page)] {
        assert!(text.contains("(late)") && !text.contains("early"), "{text}");
    }
}
