//! The manual pages, and what shells complete.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{
    LIMIT, expect_status, from_a_terminal, need, once_a_run, poundlock_bare, run_limited, scratch, stderr,
    stdout,
};

/// What `poundlock generate` writes.
fn generated() -> PathBuf {
    once_a_run("generated", |directory| {
        let mut command = poundlock_bare();
        command.args(["generate", "--date", "2026-01-01"]).arg(directory);
        expect_status(&run_limited(&mut command, LIMIT), 0);
    })
}

fn pages() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(generated().join("man/man1")).expect("it is there");
    entries.map(|entry| entry.expect("it is there").path()).collect()
}

/// A shell in which `poundlock` is the command that is tested, and that knows nothing of who runs it.
fn shell(name: &str) -> Option<Command> {
    let program = need(name, name)?;
    let command = Path::new(env!("CARGO_BIN_EXE_poundlock")).parent().expect("it lies in a directory");
    let mut shell = Command::new(program);
    let home = scratch();
    shell.env_clear().env("HOME", &home).env("TERM", "dumb").env("LC_ALL", "C.UTF-8").current_dir(home);
    shell.env("PATH", format!("{}:/usr/bin:/bin", command.display()));
    Some(shell)
}

fn script(name: &str) -> String {
    generated().join(name).to_str().expect("tests use UTF-8").to_owned()
}

/// The lines that a command prints, which has to succeed without a word of complaint.
#[track_caller]
fn lines(command: &mut Command) -> BTreeSet<String> {
    let output = run_limited(command, LIMIT);
    expect_status(&output, 0);
    assert_eq!(stderr(&output), "");
    stdout(&output).lines().map(|line| line.trim_end().to_owned()).collect()
}

#[test]
fn every_command_has_a_page_with_all_sections() {
    let pages = pages();
    assert!(pages.len() > 20, "{pages:?}");
    for path in &pages {
        let text = std::fs::read_to_string(path).expect("text");
        for section in
            ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "\"EXIT STATUS\"", "\"SEE ALSO\""]
        {
            assert!(text.contains(&format!("\n.SH {section}\n")), "{} lacks {section}", path.display());
        }
    }
    for name in ["poundlock", "poundlock-run", "poundlock-stat"] {
        let path = generated().join(format!("man/man1/{name}.1"));
        let text = std::fs::read_to_string(&path).expect("it is there");
        for section in ["OVERHEAD", "\"EXIT STATUS\"", "ENVIRONMENT"] {
            assert!(text.contains(&format!("\n.SH {section}\n")), "{name} lacks {section}");
        }
    }
}

#[test]
fn a_synopsis_names_values_and_what_has_to_be_there() {
    let synopsis = |name: &str| {
        let text = std::fs::read_to_string(generated().join(format!("man/man1/{name}.1"))).expect("text");
        let text = ["\\fB", "\\fI", "\\fR"].iter().fold(text, |text, font| text.replace(font, ""));
        text.replace("\\-", "-").replace('\u{a0}', " ")
    };
    for (name, line) in [
        ("poundlock-run", "[--lock NAME] [--rwlock NAME] [--semaphores VALUE] [-h|--help] CMD..."),
        ("poundlock-stat", "[-o|--output FILE] "),
        ("poundlock-stat", "\n.br\npoundlock stat diff ...\n"),
        ("poundlock-ipcs", "[--report [ID]] "),
        ("poundlock-ipcrm", " {--key KEY... | --all | ID...}\n"),
    ] {
        let text = synopsis(name);
        assert!(text.contains(line), "{name}: no {line:?} in {text}");
    }
}

#[test]
fn the_pages_are_free_of_warnings() {
    if let Some(mandoc) = need("mandoc", "mandoc") {
        lines(Command::new(mandoc).args(["-Tlint", "-Wwarning"]).args(pages()));
    }
    if let Some(man) = need("man", "man-db") {
        for page in pages() {
            let mut man = Command::new(&man);
            from_a_terminal(&mut man);
            man.env("LC_ALL", "C.UTF-8").env("MANROFFSEQ", "").env("MANWIDTH", "80");
            assert!(lines(man.args(["--warnings", "-l"]).arg(page)).len() > 10);
        }
    }
}

#[test]
fn help_ends_with_examples() {
    for command in [
        &["--help"][..],
        &["-h"],
        &["run", "--help"],
        &["stat", "diff", "--help"],
        &["who", "--help"],
        &["top", "--help"],
        &["bench", "-h"],
    ] {
        let output = run_limited(poundlock_bare().args(command), LIMIT);
        expect_status(&output, 0);
        let text = stdout(&output);
        assert!(text.contains("\nExamples:\n  poundlock "), "{command:?}: {text}");
    }
}

/// What bash offers for these words, of which the last is not complete.
#[track_caller]
fn bash(words: &[&str]) -> Option<BTreeSet<String>> {
    let mut bash = shell("bash")?;
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let program = format!(
        "source {}; COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); COMP_TYPE=9
        compopt() {{ :; }}
        _poundlock poundlock \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"
        printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        script("bash-completion/completions/poundlock"),
        quoted.join(" "),
    );
    Some(lines(bash.args(["--norc", "-c", &program])))
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn bash_completes() {
    let Some(commands) = bash(&["poundlock", "st"]) else { return };
    assert_eq!(commands, set(&["stat"]));
    let offered = |words: &[&str]| bash(words).expect("it is there");
    assert_eq!(offered(&["poundlock", "run", "--lock", "handoff:a"]), set(&["handoff:adaptive"]));
    assert_eq!(offered(&["poundlock", "stat", "--lock", "handoff,qspin-v"]), set(&["handoff,qspin-virt"]));
    assert_eq!(offered(&["poundlock", "run", "--rwlock", "p"]), set(&["phase-fair"]));
    let own = std::process::id().to_string();
    assert!(offered(&["poundlock", "who", &own]).contains(&own));
    let several = format!("1,{own}");
    assert!(offered(&["poundlock", "top", "--pid", &several]).contains(&several));
    assert_eq!(offered(&["poundlock", "run", "--semaphores", "ours,b"]), set(&["ours,before"]));
    assert_eq!(
        offered(&["poundlock", "sim", "run", "--machine", "westmere-ex-8s"]),
        set(&["westmere-ex-8s"])
    );
    // Without the package bash-completion, programs are completed all the same.
    assert!(
        offered(&["poundlock", "run", "--", "nroff"]).contains("nroff")
            || need("nroff", "groff-base").is_none()
    );
    // The shell's own way, where it is known.
    let mut bash = shell("bash").expect("it is there");
    let program = format!(
        "compopt() {{ :; }}; _command_offset() {{ echo offset $1; }}; source {}
        COMP_WORDS=(poundlock stat --each -- make j); COMP_CWORD=5; _poundlock poundlock j make",
        script("bash-completion/completions/poundlock")
    );
    assert_eq!(lines(bash.args(["--norc", "-c", &program])), set(&["offset 4"]));
}

/// A run under measurement is offered with its processes.
#[test]
fn runs_that_were_left_are_offered_by_their_processes() {
    let directory = Path::new("/dev/shm").join(format!("poundlock-stat-test-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("there is memory");
    let about = r#"{"command":["server","8"],"lock":"glibc","rwlock":"glibc","start_ns":1}"#;
    std::fs::write(directory.join("about.json"), about).expect("there is memory");
    std::fs::write(directory.join("4711.0.stat"), "").expect("there is memory");
    let mut command = poundlock_bare();
    command.env("POUNDLOCK_COMPLETE", "fish").args([
        "--",
        "poundlock",
        "stat",
        "--read",
        "/dev/shm/poundlock-stat-t",
    ]);
    let offered = run_limited(&mut command, LIMIT);
    std::fs::remove_dir_all(&directory).expect("it is ours");
    expect_status(&offered, 0);
    let line = format!("{}\tserver 8: processes 4711", directory.display());
    assert!(stdout(&offered).lines().any(|offered| offered == line), "{}", stdout(&offered));
}

#[test]
fn fish_completes() {
    let complete = |typed: &str| {
        let source = format!("source {}", script("fish/vendor_completions.d/poundlock.fish"));
        Some(lines(shell("fish")?.args(["--no-config", "-c", &format!("{source}; complete -C '{typed}'")])))
    };
    let Some(locks) = complete("poundlock run --lock handoff:a") else { return };
    assert!(
        locks.len() == 1 && locks.first().is_some_and(|lock| lock.starts_with("handoff:adaptive\t")),
        "{locks:?}"
    );
    let offered = complete("poundlock run -- poundlock sta").expect("it is there");
    assert!(offered.iter().any(|line| line.starts_with("stat\t")), "{offered:?}");
}

#[test]
fn zsh_completes() {
    let complete = |typed: &str, expected: &str| {
        let functions = script("zsh/site-functions");
        // A zsh with a terminal of its own.
        let program = format!(
            "zmodload zsh/zpty; zpty inner zsh -f -i
            zpty -w inner 'PS1=; fpath=({functions} $fpath); autoload -Uz compinit; compinit -u -D; echo rea''dy'
            zpty -r inner text '*ready*'
            zpty -w -n inner $'{typed}\\t'
            zpty -r inner text '*{expected}*' && echo found
            zpty -d inner"
        );
        let mut zsh = shell("zsh")?;
        Some(lines(zsh.args(["-f", "-c", &program])))
    };
    let Some(found) = complete("poundlock run --lock handoff:a", "handoff:adaptive") else { return };
    assert!(found.contains("found"), "{found:?}");
    let found = complete("poundlock run -- poundlock sim li", "sim list").expect("it is there");
    assert!(found.contains("found"), "{found:?}");
}
