//! Writes the manual pages of the C functions: `man poundlock.h DATE DIRECTORY`.
//!
//! What they say is what the header's comments say, which cbindgen takes from this crate's sources. The
//! examples beside this file are added. A page is about one type; each of its functions has a page that leads
//! there, and `poundlock(3)` has what holds for all.

use std::path::Path;
use std::process::ExitCode;
use std::{env, fs, io};

use roff::{Inline, Roff, bold, italic, roman};

/// A type, what it is in a few words, its example, and pages to look at.
struct Object {
    name: &'static str,
    about: &'static str,
    example: &'static str,
    see: &'static [&'static str],
}

macro_rules! object {
    ($name:literal, $about:literal, [$($see:literal),*]) => {
        Object {
            name: $name,
            about: $about,
            example: include_str!(concat!("man/", $name, ".c")),
            see: &[$($see),*],
        }
    };
}

const OBJECTS: [Object; 6] = [
    object!("mutex", "a mutex for more threads than CPUs", ["poundlock_cond(3)", "pthread_mutex_lock(3)"]),
    object!("recursive_mutex", "a fair mutex that its owner may lock again", ["poundlock_mutex(3)"]),
    object!("spinlock", "a queue spinlock of four bytes", ["poundlock_mutex(3)", "pthread_spin_lock(3)"]),
    object!("cond", "a condition variable", ["poundlock_mutex(3)", "pthread_cond_wait(3)"]),
    object!("rwlock", "a queued readers-writer lock", ["poundlock_mutex(3)", "pthread_rwlock_rdlock(3p)"]),
    object!("semset", "arrays of semaphores that processes share", ["poundlock-ipcs(1)", "semop(2)"]),
];

/// What the header says of a function, a type or a constant.
struct Item {
    /// Paragraphs.
    comment: Vec<String>,
    /// Without attributes, on one line.
    declaration: String,
}

impl Item {
    /// `poundlock_mutex_lock` of a function.
    fn function(&self) -> Option<&str> {
        let (before, _) = self.declaration.split_once('(')?;
        before.rsplit([' ', '*']).next().filter(|name| name.starts_with("poundlock_"))
    }

    fn is_type(&self, name: &str) -> bool {
        self.declaration.starts_with(&format!("typedef struct {name} "))
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [header, date, directory] = &arguments[..] else {
        eprintln!("man: usage: man poundlock.h DATE DIRECTORY");
        return ExitCode::from(2);
    };
    match fs::read_to_string(header).and_then(|text| write(&text, date, Path::new(directory))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("man: {header}, {directory}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn write(header: &str, date: &str, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let items = items(header);
    fs::write(directory.join("poundlock.3"), overview(header, date))?;
    let mut left: Vec<&Item> = items.iter().filter(|item| item.function().is_some()).collect();
    for object in &OBJECTS {
        let page = format!("poundlock_{}", object.name);
        let prefix = format!("{page}_");
        let of_object = |item: &&Item| item.function().is_some_and(|name| name.starts_with(&prefix));
        let (functions, others): (Vec<_>, Vec<_>) = left.into_iter().partition(of_object);
        left = others;
        fs::write(directory.join(format!("{page}.3")), object.page(&items, &functions, date))?;
        for name in functions.iter().filter_map(|item| item.function()) {
            fs::write(directory.join(format!("{name}.3")), format!(".so man3/{page}.3\n"))?;
        }
    }
    match left.first().and_then(|item| item.function()) {
        Some(name) => Err(io::Error::other(format!("{name} is on no page"))),
        None => Ok(()),
    }
}

/// The commented declarations of a header that cbindgen wrote.
fn items(header: &str) -> Vec<Item> {
    let mut items = Vec::new();
    let mut lines = header.lines();
    while let Some(line) = lines.next() {
        // Those of members are indented.
        if line != "/**" {
            continue;
        }
        let mut comment = vec![String::new()];
        for line in lines.by_ref().take_while(|line| *line != " */") {
            let text = line.trim_start_matches(" *").trim();
            let paragraph = comment.last_mut().expect("there is one");
            match (text.is_empty(), paragraph.is_empty()) {
                (true, _) => comment.push(String::new()),
                (false, true) => paragraph.push_str(text),
                (false, false) => *paragraph += &format!(" {text}"),
            }
        }
        let mut declaration = String::new();
        for line in lines.by_ref() {
            declaration += &format!("{} ", line.trim());
            let is_whole = line.starts_with("#define") || line.ends_with('{') || line.ends_with(';');
            if is_whole {
                break;
            }
        }
        let declaration = declaration.trim().replace(" POUNDLOCK_CALL", "").replace("  ", " ");
        items.push(Item { comment, declaration });
    }
    items
}

/// `poundlock(3)`: the comment that the header opens with.
fn overview(header: &str, date: &str) -> String {
    let opening = header.split(" */").next().unwrap_or_default();
    let lines = opening.lines().map(|line| line.trim_start_matches("/*").trim_start_matches(" *"));
    let mut roff = begin("poundlock", date);
    roff.control("SH", ["NAME"]);
    roff.text([roman("poundlock - locks for C and C++ that stay fast when threads outnumber CPUs")]);
    synopsis(&mut roff, &[]);
    roff.control("SH", ["DESCRIPTION"]);
    let mut is_item = false;
    for line in lines {
        let text = line.trim();
        if let Some(text) = text.strip_prefix("- ") {
            roff.control("IP", [r"\(bu", "2"]);
            roff.text(marked(text));
            is_item = true;
        } else if !text.is_empty() && (is_item || text.starts_with("Functions work")) {
            roff.text(marked(text));
        }
    }
    roff.control("PP", []);
    roff.text(marked(
        "`poundlock.hpp` is a layer for C++17: `poundlock::mutex`, `recursive_mutex`, `shared_mutex`, \
         `spinlock`, `condition_variable` and `semaphore_set`, for the standard's guards.",
    ));
    let pages = OBJECTS.iter().map(|object| format!("poundlock_{}(3)", object.name));
    see_also(&mut roff, pages.chain(["poundlock(1)".to_owned(), "pthreads(7)".to_owned()]));
    roff.render()
}

impl Object {
    fn page(&self, items: &[Item], functions: &[&Item], date: &str) -> String {
        let mut roff = begin(&format!("poundlock_{}", self.name), date);
        roff.control("SH", ["NAME"]);
        let mut names = vec![format!("poundlock_{}", self.name)];
        names.extend(functions.iter().filter_map(|item| item.function()).map(str::to_owned));
        roff.text([roman(format!("{} - {}", names.join(", "), self.about))]);
        let declarations: Vec<&str> = functions.iter().map(|item| item.declaration.as_str()).collect();
        synopsis(&mut roff, &declarations);
        roff.control("SH", ["DESCRIPTION"]);
        let types = ["_t", "_op_t"].map(|kind| format!("poundlock_{}{kind}", self.name));
        let of_type = items.iter().filter(|item| types.iter().any(|name| item.is_type(name)));
        paragraphs(&mut roff, of_type.flat_map(|item| &item.comment));
        let constant = format!("#define POUNDLOCK_{}_", self.name.to_uppercase());
        for item in items.iter().filter(|item| item.declaration.starts_with(&constant)) {
            let name = item.declaration.split(' ').nth(1).unwrap_or_default();
            tagged(&mut roff, name, item.comment.iter());
        }
        for item in functions {
            let said = item.comment.iter().filter(|paragraph| !is_result(paragraph));
            tagged(&mut roff, &format!("{}()", item.function().unwrap_or_default()), said);
        }
        roff.control("SH", ["RETURN VALUE"]);
        for item in functions {
            let said = item.comment.iter().filter(|paragraph| is_result(paragraph));
            tagged(&mut roff, &format!("{}()", item.function().unwrap_or_default()), said);
        }
        roff.control("SH", ["NOTES"]);
        roff.text(marked(
            "What holds for all functions, of pointers, signals, forks and cancellation, is in",
        ));
        roff.control("BR", ["poundlock", "(3)."]);
        roff.control("SH", ["EXAMPLES"]);
        verbatim(&mut roff, self.example);
        see_also(&mut roff, std::iter::once("poundlock(3)").chain(self.see.iter().copied()));
        roff.render()
    }
}

/// Whether a paragraph says what a function returns.
fn is_result(paragraph: &str) -> bool {
    paragraph.starts_with("Returns ")
}

fn begin(page: &str, date: &str) -> Roff {
    let mut roff = Roff::new();
    let version = concat!("poundlock ", env!("CARGO_PKG_VERSION"));
    roff.control("TH", [page, "3", date, version, "Poundlock's C library"]);
    roff
}

fn synopsis(roff: &mut Roff, declarations: &[&str]) {
    roff.control("SH", ["SYNOPSIS"]);
    roff.control("nf", []);
    roff.text([bold("#include <poundlock.h>")]);
    if !declarations.is_empty() {
        roff.control("PP", []);
        for declaration in declarations {
            // What does not fit a terminal goes on below.
            let whole = declaration.len() <= 70;
            let shown =
                if whole { (*declaration).to_owned() } else { declaration.replacen('(', "(\n    ", 1) };
            for line in shown.replace(if whole { "\n" } else { ", " }, ",\n    ").lines() {
                roff.text([bold(line)]);
            }
        }
    }
    roff.control("PP", []);
    roff.text([roman("cc "), italic("program.c"), roman(" $(pkg-config --cflags --libs poundlock)")]);
    roff.control("fi", []);
}

fn paragraphs<'a>(roff: &mut Roff, said: impl Iterator<Item = &'a String>) {
    for (index, paragraph) in said.filter(|paragraph| !paragraph.is_empty()).enumerate() {
        if index > 0 {
            roff.control("PP", []);
        }
        roff.text(marked(paragraph));
    }
}

fn tagged<'a>(roff: &mut Roff, tag: &str, said: impl Iterator<Item = &'a String>) {
    roff.control("TP", []);
    roff.text([bold(tag)]);
    for (index, paragraph) in said.filter(|paragraph| !paragraph.is_empty()).enumerate() {
        if index > 0 {
            roff.control("IP", []);
        }
        roff.text(marked(paragraph));
    }
}

fn verbatim(roff: &mut Roff, text: &str) {
    roff.control("nf", []);
    roff.control("RS", ["4"]);
    for line in text.trim_end().lines() {
        // An empty line is a macro's to make.
        if line.is_empty() {
            roff.control("sp", [])
        } else {
            roff.text([roman(line)])
        };
    }
    roff.control("RE", []);
    roff.control("fi", []);
}

fn see_also(roff: &mut Roff, pages: impl Iterator<Item = impl AsRef<str>>) {
    roff.control("SH", ["SEE ALSO"]);
    let pages: Vec<_> = pages.collect();
    for (index, page) in pages.iter().enumerate() {
        let (name, section) = page.as_ref().split_once('(').expect("a page has a section");
        let end = if index + 1 < pages.len() { "," } else { "" };
        roff.control("BR", [name, &format!("({section}{end}")]);
    }
}

/// A text in which what stands between backquotes is bold.
fn marked(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(index, part)| if index % 2 == 1 { bold(part) } else { roman(part) }).collect()
}
