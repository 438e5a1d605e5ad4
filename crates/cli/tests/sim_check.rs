//! `poundlock sim check`: what it prints, and what it says to bad input.

use crate::support::{LIMIT, poundlock_bare, run_limited};

fn check(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = poundlock_bare();
    let output = run_limited(command.args(["sim", "check"]).args(arguments), 2 * LIMIT);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn every_lock_is_checked_and_a_seed_is_the_same_each_time() {
    let run = || {
        let (status, text, said) = check(&["--seeds", "5..25"]);
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("accesses in"), "{said}");
        let verdict = text.lines().last().unwrap();
        assert!(
            verdict.starts_with("no violation found in ") && verdict.ends_with(", seeds 5..25)"),
            "{text}"
        );
        text
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second);
    for lock in ["poundlock", "baseline", "handoff:adaptive", "qspin-pv", "ticket"] {
        let row = first.lines().find(|line| line.split_whitespace().next() == Some(lock));
        let row: Vec<_> = row.unwrap_or_else(|| panic!("{lock}: {first}")).split_whitespace().collect();
        assert_eq!(row[1], "20", "{first}");
        assert!(row[2..].iter().all(|figure| figure.parse::<f64>().unwrap() > 0.0), "{first}");
    }
}

#[test]
fn one_seed_of_one_lock_can_be_seen_again() {
    let (status, text, said) = check(&["--lock", "mcs,ticket", "--seeds", "1234..1235"]);
    assert_eq!(status, Some(0), "{said}");
    assert_eq!(text.lines().filter(|line| line.contains(" 1 ")).count(), 2, "{text}");
}

#[test]
fn bad_input_is_refused() {
    for (arguments, word) in
        [(["--lock", "musl"], "'musl'"), (["--seeds", "7"], "two numbers"), (["--seeds", "7..7"], "lower")]
    {
        let (status, text, said) = check(&arguments);
        assert_eq!((status, text.as_str()), (Some(2), ""), "{said}");
        assert!(said.contains(word), "{said}");
    }
}
