//! Which functions the sources of the locks have, and which words these access, by line and column: what
//! `profile` shows of a step besides its place. The sources need not be there when the simulator runs.
//!
//! This reads lines as `rustfmt` leaves them, no syntax. What it misses (code that macros make) is shown by
//! its place alone.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Crates with code that runs on the simulated machine.
const CRATES: [&str; 3] = ["core", "sim", "textbook"];

/// The operations of `Atomic` and `Split`.
const OPERATIONS: [&str; 14] = [
    "load",
    "store",
    "swap",
    "compare_exchange",
    "update",
    "fetch_add",
    "fetch_and",
    "fetch_or",
    "store_low_byte",
    "compare_exchange_low_byte",
    "store_low_half",
    "swap_high_half",
    "release_low_byte",
    "take_low_byte",
];

fn main() {
    let crates = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("..");
    let mut table = "&[\n".to_owned();
    for name in CRATES {
        let root = crates.join(name).join("src");
        println!("cargo::rerun-if-changed={}", root.display());
        let mut files = Vec::new();
        sources(&root, &mut files);
        files.sort();
        for file in files {
            let text = fs::read_to_string(&file).expect("a source that was listed");
            let inside = file.strip_prefix(&root).expect("it was found there");
            // As the compiler names it, but for what is in front.
            let short = format!("{name}/src/{}", inside.display());
            let (functions, words) = read(&text);
            writeln!(table, "    ({short:?}, &{functions:?}, &{words:?}),").expect("a string");
        }
    }
    table += "]\n";
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("accesses.rs"), table).expect("a place for what is made");
}

fn sources(directory: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            into.push(path);
        }
    }
}

type Functions<'a> = Vec<(usize, &'a str)>;
type Words<'a> = Vec<(usize, usize, &'a str)>;

/// The lines in which another function goes on than before, with its name; and the lines and columns of
/// accesses, with the name of the word.
fn read(text: &str) -> (Functions<'_>, Words<'_>) {
    let (mut functions, mut words) = (Vec::new(), Vec::new());
    // Functions that may go on in this line: how far they are indented, and their names.
    let mut within: Vec<(usize, &str)> = Vec::new();
    let mut start = 0;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let code = line.trim_start();
        let indent = line.len() - code.len();
        if !code.is_empty() {
            // What begins as far to the left as a function is not within it, except its own brackets.
            let closes = code.starts_with([')', '}', '{']) || code.starts_with("where");
            within.retain(|&(other, _)| other < indent || closes && other == indent);
        }
        if let Some(name) = function(code) {
            within.retain(|&(other, _)| other < indent);
            within.push((indent, name));
        }
        let name = within.last().map_or("", |&(_, name)| name);
        if functions.last().is_none_or(|&(_, last)| last != name) {
            functions.push((number, name));
        }
        if !code.starts_with("//") {
            for operation in OPERATIONS {
                for (at, _) in line.match_indices(&format!(".{operation}(")) {
                    if let Some(word) = receiver(&text[..start + at]) {
                        // The column counts from 1, and is that of the operation.
                        words.push((number, line[..at].chars().count() + 2, word));
                    }
                }
            }
        }
        start += line.len() + 1;
    }
    (functions, words)
}

/// The function that begins in this line.
fn function(code: &str) -> Option<&str> {
    let words = ["pub(crate) ", "pub(super) ", "pub ", "const ", "unsafe ", "extern \"C\" "];
    let mut code = code;
    while let Some(rest) = words.iter().find_map(|word| code.strip_prefix(word)) {
        code = rest;
    }
    let name = code.strip_prefix("fn ")?;
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    Some(&name[..end])
}

/// The last name of the expression that this text ends with: `attempts` of `id.get::<P>().attempts()`.
fn receiver(mut text: &str) -> Option<&str> {
    loop {
        text = text.trim_end();
        text = match text.chars().next_back()? {
            ')' => before(text, '(', ')')?,
            ']' => before(text, '[', ']')?,
            '>' => before(text, '<', '>')?.strip_suffix("::")?,
            _ => break,
        };
    }
    let begin = text.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
    let name = &text[begin..];
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        // A field without a name.
        return receiver(text[..begin].strip_suffix('.')?);
    }
    (!name.is_empty() && name != "self").then_some(name)
}

/// What is before the bracket that the last one closes.
fn before(text: &str, open: char, close: char) -> Option<&str> {
    let mut depth = 0;
    for (at, c) in text.char_indices().rev() {
        if c == close {
            depth += 1;
        } else if c == open {
            depth -= 1;
            if depth == 0 {
                return Some(&text[..at]);
            }
        }
    }
    None
}
