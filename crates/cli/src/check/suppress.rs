//! Findings that are known and not to be told: stanzas in a file.
//!
//! ```text
//! # why it is there
//! {
//!   a name of your choice
//!   order
//!   lock:cache_lock
//!   fun:log_line
//!   ...
//!   fun:main
//!   --
//!   fun:put*
//! }
//! ```
//!
//! The second line is the kind of finding, or `*`. Each `lock:` is a lock, or a sort of locks, that the finding
//! has to be about. The rest is stacks with `--` between them, innermost frame first: each has to be the beginning
//! of one of the finding's. In names `*` stands for any letters and `?` for one, and `...` for any frames.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::message::{Failure, status};
use crate::observe::shorten::bare;
use crate::observe::symbols::Frame;
use crate::program::reason;

use super::finding::{Finding, interesting};
use super::kinds::Kind;

/// All stanzas of all files.
#[derive(Debug, Default)]
pub(super) struct Suppressions(Vec<Stanza>);

#[derive(Debug, PartialEq, Eq)]
struct Stanza {
    name: String,
    /// `None` for every kind.
    kind: Option<Kind>,
    locks: Vec<String>,
    stacks: Vec<Vec<Pattern>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Pattern {
    /// The function.
    Function(String),
    /// The file that was mapped there.
    Object(String),
    /// The frame as it is printed.
    At(String),
    /// Any frames, or none.
    Any,
}

impl Suppressions {
    /// Reads these files.
    pub(super) fn read(paths: &[PathBuf]) -> Result<Suppressions, Failure> {
        let mut all = Suppressions::default();
        for path in paths {
            let wrong = |why: String| Failure::new(status::OURS, format_args!("{}: {why}", path.display()));
            let bytes = read(path).map_err(|error| wrong(reason(&error)))?;
            let text = String::from_utf8(bytes).map_err(|_| wrong("it is no text (UTF-8)".to_owned()))?;
            let stanzas = parse(&text).map_err(|(line, why)| {
                Failure::new(status::OURS, format_args!("{}:{line}: {why}", path.display()))
            })?;
            all.0.extend(stanzas);
        }
        Ok(all)
    }

    /// The name of the first stanza that a finding fits.
    pub(super) fn fits(&self, finding: &Finding) -> Option<&str> {
        self.0.iter().find(|stanza| stanza.fits(finding)).map(|stanza| stanza.name.as_str())
    }
}

/// A file, or a pipe: not a directory, which opens as well.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    if path.is_dir() {
        return Err(std::io::Error::from(std::io::ErrorKind::IsADirectory));
    }
    std::fs::read(path)
}

/// The stanzas of a text; or the line that is wrong, and why.
fn parse(text: &str) -> Result<Vec<Stanza>, (usize, String)> {
    let mut stanzas = Vec::new();
    // The stanza that is open: where it began, and what there is of it.
    let mut open: Option<(usize, Vec<(usize, &str)>)> = None;
    for (number, line) in text.lines().enumerate() {
        let (number, line) = (number + 1, line.trim());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match (&mut open, line) {
            (None, "{") => open = Some((number, Vec::new())),
            (None, "}") => return Err((number, "a `}` without its `{`".to_owned())),
            (None, _) => return Err((number, "a stanza begins with a line `{`".to_owned())),
            (Some((began, _)), "{") => {
                return Err((number, format!("a stanza in the one of line {began}, which lacks its `}}`")));
            }
            (Some((began, lines)), "}") => {
                stanzas.push(stanza(lines, *began)?);
                open = None;
            }
            (Some((_, lines)), _) => lines.push((number, line)),
        }
    }
    match open {
        Some((began, _)) => Err((began, "this stanza lacks its `}`".to_owned())),
        None => Ok(stanzas),
    }
}

fn stanza(lines: &[(usize, &str)], began: usize) -> Result<Stanza, (usize, String)> {
    let [(_, name), (at, kind), rest @ ..] = lines else {
        return Err((began, "a stanza has a name, and a kind in the next line".to_owned()));
    };
    let kind = match *kind {
        "*" => None,
        name => {
            let names = || Kind::all().map(Kind::name).collect::<Vec<_>>().join(", ");
            let unknown = || (*at, format!("unknown kind '{name}': choose from *, {}", names()));
            Some(Kind::of_name(name).ok_or_else(unknown)?)
        }
    };
    let mut locks = Vec::new();
    let mut stacks = vec![Vec::new()];
    for &(at, line) in rest {
        let stack: &mut Vec<Pattern> = stacks.last_mut().expect("never empty");
        match (line, line.split_once(':')) {
            ("--", _) => stacks.push(Vec::new()),
            ("...", _) => stack.push(Pattern::Any),
            (_, Some(("lock", name))) => locks.push(name.trim().to_owned()),
            (_, Some(("fun", name))) => stack.push(Pattern::Function(name.trim().to_owned())),
            (_, Some(("obj", name))) => stack.push(Pattern::Object(name.trim().to_owned())),
            (_, Some(("at", text))) => stack.push(Pattern::At(text.trim().to_owned())),
            _ => {
                let why = format!("'{line}' is none of lock:NAME, fun:NAME, obj:FILE, at:TEXT, ... and --");
                return Err((at, why));
            }
        }
    }
    stacks.retain(|stack| !stack.is_empty());
    Ok(Stanza { name: (*name).to_owned(), kind, locks, stacks })
}

impl Stanza {
    fn fits(&self, finding: &Finding) -> bool {
        let lock = |pattern: &String| {
            finding.locks.iter().any(|lock| glob(pattern, &lock.class) || glob(pattern, &lock.name))
        };
        let stack = |pattern: &Vec<Pattern>| {
            finding.stacks.iter().any(|stack| begins(pattern, &interesting(&stack.frames)))
        };
        self.kind.is_none_or(|kind| kind == finding.kind)
            && self.locks.iter().all(lock)
            && self.stacks.iter().all(stack)
    }
}

/// Whether a stack begins with these frames.
fn begins(pattern: &[Pattern], frames: &[&Frame]) -> bool {
    match pattern {
        [] => true,
        [Pattern::Any, rest @ ..] => (0..=frames.len()).any(|skip| begins(rest, &frames[skip..])),
        [first, rest @ ..] => frames.split_first().is_some_and(|(frame, frames)| {
            let same = match first {
                Pattern::Function(name) => [&frame.function, &frame.name, &*bare(&frame.function)]
                    .iter()
                    .any(|function| glob(name, function)),
                Pattern::Object(name) => glob(name, &frame.module),
                Pattern::At(text) => glob(text, &frame.text) || glob(text, &frame.whole),
                Pattern::Any => true,
            };
            same && begins(rest, frames)
        }),
    }
}

/// Whether a text is of this form.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // The last star, and how much of the text it stands for so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(&c) if c == '?' || c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, upto)) => {
                    star = Some((at, upto + 1));
                    (p, t) = (at + 1, upto + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

/// A stanza that fits this finding, and others of its kind with these locks and functions only.
pub(super) fn stanza_for(finding: &Finding) -> String {
    let mut text = format!("{{\n  {}\n  {}\n", name_for(finding), finding.kind.name());
    let mut locks: Vec<&str> = finding.locks.iter().map(|lock| lock.class.as_str()).collect();
    locks.sort_unstable();
    locks.dedup();
    // An address is another one in the next run.
    for lock in locks.iter().filter(|name| !name.is_empty() && !name.contains(" 0x")) {
        let _ = writeln!(text, "  lock:{lock}");
    }
    let mut stacks: Vec<String> = Vec::new();
    for stack in &finding.stacks {
        let frames = interesting(&stack.frames);
        let lines: String = frames.iter().map(|frame| format!("  {}\n", line_for(frame))).collect();
        if !lines.is_empty() && !stacks.contains(&lines) {
            stacks.push(lines);
        }
    }
    text += &stacks.join("  --\n");
    text += "}\n";
    text
}

/// What a newcomer would call it.
fn name_for(finding: &Finding) -> String {
    let mut names: Vec<&str> = finding.locks.iter().map(|lock| lock.class.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let names = names.join(", ");
    if names.is_empty() {
        finding.kind.name().to_owned()
    } else {
        format!("{}: {names}", finding.kind.name())
    }
}

fn line_for(frame: &Frame) -> String {
    match (frame.function.is_empty(), frame.module.is_empty()) {
        (false, _) => format!("fun:{}", bare(&frame.function)),
        (true, false) => format!("at:{}", frame.whole),
        (true, true) => "at:*".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::tests::{frame, order};
    use super::*;

    #[test]
    fn names_may_have_stars() {
        for (pattern, text, fits) in [
            ("put", "put", true),
            ("put", "puts", false),
            ("put*", "puts", true),
            ("*lock*", "log_lock_it", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("t?[].lock", "ta[].lock", true),
            ("*", "", true),
            ("", "x", false),
        ] {
            assert_eq!(glob(pattern, text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn a_stanza_that_was_made_fits_its_finding_and_no_other() {
        let one = order("a", "b", "put", "get");
        let others =
            [order("a", "c", "put", "get"), order("a", "b", "put", "set"), order("x", "y", "put", "get")];
        let stanzas = Suppressions(parse(&stanza_for(&one)).expect("well made"));
        assert!(stanzas.fits(&one).is_some());
        for other in &others {
            assert!(stanzas.fits(other).is_none(), "{other:?}");
        }
        let mut relock = one.clone();
        relock.kind = Kind::Relock;
        assert!(stanzas.fits(&relock).is_none());
        for of in [&one, &others[0], &others[1], &others[2]] {
            let all: String = [&one, &others[0], &others[1]].map(stanza_for).concat();
            let fits = Suppressions(parse(&all).expect("well made")).fits(of).is_some();
            assert_eq!(fits, of.locks[0].name == "a", "{of:?}");
        }
    }

    #[test]
    fn frames_may_be_left_out_and_stacks_named_apart() {
        let one = order("a", "b", "put", "get");
        let fits = |lines: &str| {
            let text = format!("# a word\n\n{{\n name\n order\n {lines}\n}}\n");
            Suppressions(parse(&text).expect("well formed")).fits(&one).is_some()
        };
        assert!(fits("") && fits("lock:a") && !fits("lock:c"));
        assert!(fits("...\nfun:main") && fits("fun:put\n...\nfun:main") && !fits("fun:main"));
        assert!(fits("fun:put\n--\nfun:get") && !fits("fun:put\n--\nfun:set"));
        assert!(fits("obj:prog*\nat:main (*") && !fits("obj:lib*"));
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, line, words) in [
            ("x", 1, "begins with"),
            ("{\n a\n order\n", 1, "lacks"),
            ("\n}\n", 2, "without"),
            ("{\n a\n}\n", 1, "a kind"),
            ("{\n a\n nonesuch\n}\n", 3, "nonesuch"),
            ("{\n a\n order\n put\n}\n", 4, "'put'"),
            ("{\n a\n order\n{\n}\n", 4, "line 1"),
        ] {
            let (at, why) = parse(text).expect_err(text);
            assert!(at == line && why.contains(words), "{text:?}: {at}: {why}");
        }
    }

    #[test]
    fn what_has_no_name_is_known_by_its_place_in_the_file() {
        let mut unknown = frame("", 0);
        assert_eq!(line_for(&unknown), "at:*");
        unknown.module = "libx.so".to_owned();
        unknown.whole = "libx.so+0x12".to_owned();
        assert_eq!(line_for(&unknown), "at:libx.so+0x12");
    }
}
