//! What people read about the command: the examples that every `--help` ends with, and the manual pages,
//! which are made of the options and of the words in `manual/pages.rs`. `poundlock generate` writes the pages
//! and the scripts for shells.

mod pages;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

use crate::complete::scripts;
use crate::message::{Failure, status};
use pages::{PAGES, Page, Part};

/// Where to write them.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The directory, below which they lie as in `/usr/share`; `~/.local/share` for one user
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// The date that the manual pages bear
    #[arg(long, value_name = "YYYY-MM-DD", default_value = "")]
    date: String,
}

/// The command line, with examples.
pub(crate) fn command() -> Command {
    fn with_examples(command: Command, path: &str) -> Command {
        let command = match page(path).map(|page| page.examples) {
            Some(examples) if !examples.is_empty() => command.after_help(shown(examples)),
            _ => command,
        };
        command.mut_subcommands(|below| {
            let path = format!("{path} {}", below.get_name());
            with_examples(below, &path)
        })
    }
    with_examples(crate::Cli::command(), "poundlock")
}

fn page(path: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.path == path)
}

/// The further sections of a command's page: its own, or those of the page above it.
fn sections(path: &str) -> &'static [(&'static str, &'static [Part])] {
    let own = page(path).map_or(&[][..], |page| page.sections);
    match path.rsplit_once(' ') {
        Some((above, _)) if own.is_empty() => sections(above),
        _ => own,
    }
}

/// Examples as `--help` shows them.
fn shown(examples: &[(&str, &str)]) -> String {
    let lines = examples.iter().map(|(line, what)| format!("  {line}\n      {what}"));
    format!("Examples:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

/// Writes all files.
pub(crate) fn main(args: Args) -> ExitCode {
    match generate(&args.directory, &args.date) {
        Ok(()) => ExitCode::SUCCESS,
        Err((path, error)) => {
            Failure::new(status::OURS, format_args!("{}: {error}", path.display())).report()
        }
    }
}

fn generate(directory: &Path, date: &str) -> Result<(), (PathBuf, io::Error)> {
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        let parent = path.parent().unwrap_or(directory);
        let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, text));
        written.map_err(|error| (path, error))
    };
    let mut root = command().disable_help_subcommand(true);
    root.build();
    let mut left = vec![(&root, "poundlock".to_owned())];
    while let Some((command, path)) = left.pop() {
        let text = manual(command, &path, date).map_err(|error| (directory.to_owned(), error))?;
        write(&format!("man/man1/{}.1", path.replace(' ', "-")), &text)?;
        left.extend(below(command).map(|below| (below, format!("{path} {}", below.get_name()))));
    }
    for (name, script) in scripts() {
        write(name, &script)?;
    }
    Ok(())
}

/// The sub-commands that people use.
fn below(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
}

/// The manual page of a command.
fn manual(command: &Command, path: &str, date: &str) -> io::Result<String> {
    let name = path.replace(' ', "-");
    let version = concat!("poundlock ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(&name).date(date).source(version).manual("Poundlock");
    let mut text = Vec::new();
    let page = page(path);
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    // Neither hyphens in names nor wide gaps.
    roff.control("nh", []);
    roff.control("ad", ["l"]);
    synopsis(&mut roff, command, path);
    roff.control("ad", ["b"]);
    roff.control("hy", []);
    text.extend_from_slice(roff.to_roff().as_bytes());
    man.render_description_section(&mut text)?;
    let mut roff = Roff::new();
    for paragraph in page.map_or(&[][..], |page| page.description) {
        roff.control("PP", []);
        roff.text(marked(paragraph));
    }
    text.extend_from_slice(roff.to_roff().as_bytes());
    man.render_options_section(&mut text)?;
    if below(command).next().is_some() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::new();
    if let Some(page) = page {
        if !page.examples.is_empty() {
            roff.control("SH", ["EXAMPLES"]);
        }
        for (line, what) in page.examples {
            tagged(&mut roff, line, what);
        }
    }
    for (title, parts) in sections(path) {
        section(&mut roff, title, parts);
    }
    roff.control("SH", ["SEE ALSO"]);
    let mut pages: Vec<String> =
        path.rsplit_once(' ').map(|(above, _)| above.replace(' ', "-")).into_iter().collect();
    pages.extend(below(command).map(|below| format!("{name}-{}", below.get_name())));
    pages.extend(page.map_or(&[][..], |page| page.see).iter().map(|page| (*page).to_owned()));
    for (index, page) in pages.iter().enumerate() {
        let (name, section) = page.trim_end_matches(')').split_once('(').unwrap_or((page, "1"));
        let end = if index + 1 < pages.len() { "," } else { "" };
        roff.control("BR", [name, &format!("({section}){end}")]);
    }
    text.extend_from_slice(roff.to_roff().as_bytes());
    let text = String::from_utf8(text).map_err(io::Error::other)?;
    // clap_mangen asks twice for the empty line before the values of an option.
    Ok(text.replace(".br\n\n.br\n", ".sp\n"))
}

/// How it is typed. That of clap_mangen has options without their values.
fn synopsis(roff: &mut Roff, command: &Command, path: &str) {
    let mut line = vec![bold(path)];
    let (positional, options): (Vec<&Arg>, Vec<&Arg>) =
        command.get_arguments().filter(|arg| !arg.is_hide_set()).partition(|arg| arg.is_positional());
    // One of each of these groups has to be there.
    let groups: Vec<_> = command.get_groups().filter(|group| group.is_required_set()).collect();
    let grouped = |arg: &Arg| groups.iter().any(|group| group.get_args().any(|id| id == arg.get_id()));
    let typed = |line: &mut Vec<Inline>, arg: &Arg| {
        let (open, close) = if arg.is_required_set() { ("", "") } else { ("[", "]") };
        line.push(roman(format!(" {open}")));
        line.extend(argument(arg));
        line.push(roman(close));
    };
    for option in options.iter().filter(|option| !grouped(option)) {
        typed(&mut line, option);
    }
    for group in &groups {
        let of_group =
            options.iter().chain(&positional).filter(|arg| group.get_args().any(|id| id == arg.get_id()));
        for (index, arg) in of_group.enumerate() {
            line.push(roman(if index == 0 { " {" } else { " | " }));
            line.extend(argument(arg));
        }
        line.push(roman("}"));
    }
    for arg in positional.iter().filter(|arg| !grouped(arg)) {
        typed(&mut line, arg);
    }
    if below(command).next().is_none() {
        roff.text(line);
        return;
    }
    if !command.is_subcommand_required_set() {
        roff.text(line);
        roff.control("br", []);
    }
    let mut names = vec![bold(path)];
    let (open, close) = if below(command).count() > 1 { (" {", "}") } else { (" ", "") };
    for (index, below) in below(command).enumerate() {
        names.push(roman(if index == 0 { open } else { " | " }));
        names.push(bold(below.get_name()));
    }
    names.push(roman(format!("{close} ...")));
    roff.text(names);
}

/// An option with its value, or a value alone, which a line does not break.
fn argument(arg: &Arg) -> Vec<Inline> {
    let mut parts = Vec::new();
    if let Some(short) = arg.get_short() {
        parts.push(bold(format!("-{short}")));
    }
    if let Some(long) = arg.get_long() {
        if !parts.is_empty() {
            parts.push(roman("|"));
        }
        parts.push(bold(format!("--{long}")));
    }
    let count = arg.get_num_args().unwrap_or_default();
    if count.takes_values() {
        let (open, close) = match (parts.is_empty(), count.min_values()) {
            (true, _) => ("", ""),
            (false, 0) => ("\u{a0}[", "]"),
            (false, _) => ("\u{a0}", ""),
        };
        let names = arg.get_value_names().map(|names| names.join("\u{a0}"));
        let more = if count.max_values() > 1 { "..." } else { "" };
        parts.push(roman(open));
        parts.push(italic(names.unwrap_or_else(|| arg.get_id().to_string())));
        parts.push(roman(format!("{more}{close}")));
    }
    parts
}

fn section(roff: &mut Roff, title: &str, parts: &[Part]) {
    roff.control("SH", [title]);
    let mut is_first = true;
    for part in parts {
        match part {
            Part::Text(text) => {
                if !is_first {
                    roff.control("PP", []);
                }
                roff.text(marked(text));
            }
            Part::Tagged(tag, text) => tagged(roff, tag, text),
            Part::Status(code) => {
                let means = status::MEANINGS.iter().find(|(known, _)| known == code);
                tagged(roff, &code.to_string(), means.map_or("", |(_, text)| text));
            }
        }
        is_first = false;
    }
}

fn tagged(roff: &mut Roff, tag: &str, text: &str) {
    roff.control("TP", []);
    roff.text([bold(tag)]);
    roff.text(marked(text));
}

/// A text in which what stands between backquotes is bold.
fn marked(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(|(index, part)| if index % 2 == 1 { bold(part) } else { roman(part) }).collect()
}

#[cfg(test)]
mod tests {
    use super::{PAGES, below, command};

    /// They are command lines, of the command that they stand under.
    #[test]
    fn examples_make_sense() {
        for page in PAGES {
            let in_this_build = |word: &str, has: bool| has || !page.path.contains(word);
            if !in_this_build("bench", cfg!(feature = "bench"))
                || !in_this_build("sim", cfg!(feature = "sim"))
            {
                continue;
            }
            for (line, _) in page.examples {
                // What is before and behind it is the shell's.
                let begin = line.find("poundlock").unwrap_or_else(|| panic!("{line} does not call us"));
                let line = line[begin..]
                    .split(" > ")
                    .flat_map(|part| part.split(" | "))
                    .next()
                    .expect("there is a first");
                let line = line.replace("$(pidof server)", "4242");
                assert!(line.starts_with(page.path), "{line} is no example of {}", page.path);
                // What stands between quotes is one word.
                let words = line.split('\'').enumerate().flat_map(|(index, part)| match index % 2 {
                    1 => vec![part],
                    _ => part.split_whitespace().collect(),
                });
                if let Err(error) = command().try_get_matches_from(words) {
                    panic!("{line}: {error}");
                }
            }
        }
    }

    /// No page is of a command that is not there, and every command has examples.
    #[test]
    fn every_command_has_examples() {
        fn check(command: &clap::Command, path: &str) {
            let found = PAGES.iter().any(|page| page.path == path && !page.examples.is_empty());
            assert!(found, "{path} has no examples: crates/cli/src/manual/pages.rs");
            for below in below(command) {
                check(below, &format!("{path} {}", below.get_name()));
            }
        }
        if cfg!(all(feature = "bench", feature = "sim")) {
            check(&command(), "poundlock");
            for page in PAGES {
                let mut words = page.path.split(' ').skip(1);
                let found = words.try_fold(command(), |command, word| command.find_subcommand(word).cloned());
                assert!(found.is_some(), "there is no {}", page.path);
            }
        }
    }
}
