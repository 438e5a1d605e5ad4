//! Links lead somewhere: those between Markdown pages, the pages that sources name, and what CONTRIBUTING.md
//! names; those of the book, which is made of the same pages. Markdown is wrapped at 110 columns. The README is
//! one screen, and reads well.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{LIMIT, expect_status, missing, run_limited, scratch, stderr, stdout};

const WIDTH: usize = 110;
/// Written by programs, or kept as it was.
const WRAPPED_BY_OTHERS: &[&str] = &["FIGURES.md", "GRID.md", "CHANGELOG.md"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

/// All files of the repository with one of these endings, but for what was built.
fn files(below: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(below).expect("the directory can be read") {
        let path = entry.expect("the entry can be read").path();
        let name = path.file_name().expect("it has a name").to_string_lossy();
        if name.starts_with('.') || name == "target" || path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            files(&path, endings, found);
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

/// The lines of a page that are not code, with their numbers.
fn prose(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    page.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &str) -> Vec<String> {
    let headings = prose(page).filter(|(_, line)| line.starts_with('#'));
    let words = headings.map(|(_, line)| line.trim_start_matches('#').trim().to_lowercase());
    words
        .map(|words| words.replace(' ', "-"))
        .map(|words| words.chars().filter(|&c| c.is_alphanumeric() || "-_".contains(c)).collect())
        .collect()
}

/// The targets of the links in a line: `[text](target)` and `[text]: target`.
fn targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    let defined = line.starts_with('[').then(|| line.split_once("]: ")).flatten().map(|(_, target)| target);
    inline.chain(defined).filter(|target| !target.contains("://")).collect()
}

/// The pages that a text names by their paths from the root: `docs/....md`.
fn named(text: &str) -> Vec<&str> {
    let from = |start: usize| {
        let rest = &text[start..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !"/._-".contains(c));
        rest[..end.unwrap_or(rest.len())].trim_end_matches('.')
    };
    let starts = text.match_indices("docs/").map(|(start, _)| start);
    let whole = starts.filter(|&start| !text[..start].ends_with(['/', '-', '.']));
    // NAME stands for a lock's.
    whole.map(from).filter(|path| path.ends_with(".md") && !path.contains("NAME")).collect()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let mut pages = Vec::new();
    files(&root(), &[".md"], &mut pages);
    let texts: BTreeMap<PathBuf, String> =
        pages.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).expect("UTF-8"))).collect();
    assert!(texts.len() > 10, "too few pages: {:?}", texts.keys());
    let mut broken = Vec::new();
    for (path, text) in &texts {
        for (number, line) in prose(text) {
            for target in targets(line) {
                let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
                let page = match file {
                    "" => path.clone(),
                    file => path.with_file_name(file),
                };
                let there = page.canonicalize().is_ok_and(|page| {
                    anchor.is_empty()
                        || texts.get(&page).is_some_and(|text| anchors(text).iter().any(|a| a == anchor))
                });
                if !there {
                    broken.push(format!("{}:{}: {target}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn pages_that_files_name_are_there() {
    let mut sources = Vec::new();
    files(&root(), &[".rs", ".c", ".h", ".cc", ".cpp", ".hpp", ".md", ".toml"], &mut sources);
    let mut missing = Vec::new();
    let mut mentions = 0;
    for path in sources.iter().filter(|path| !path.ends_with(file!())) {
        let text = std::fs::read_to_string(path).expect("UTF-8");
        for page in named(&text) {
            mentions += 1;
            if !root().join(page).is_file() {
                missing.push(format!("{}: {page}", path.display()));
            }
        }
    }
    assert!(mentions > 10, "too few: {mentions}");
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn pages_are_wrapped_alike() {
    let mut pages = Vec::new();
    files(&root(), &[".md"], &mut pages);
    let mut long = Vec::new();
    for path in pages.iter().filter(|path| !WRAPPED_BY_OTHERS.iter().any(|other| path.ends_with(other))) {
        let text = std::fs::read_to_string(path).expect("UTF-8");
        let lines = prose(&text).filter(|(_, line)| !line.starts_with(['|', '#']));
        // A word that is longer than a line stays as it is.
        let lines = lines.filter(|(_, line)| line.chars().count() > WIDTH && line.trim().contains(' '));
        long.extend(lines.map(|(number, _)| format!("{}:{}", path.display(), number + 1)));
    }
    assert!(long.is_empty(), "more than {WIDTH} columns:\n{}", long.join("\n"));
}

/// The page begins with what the others are for: more would not be read.
#[test]
fn the_readme_is_one_screen() {
    let text = std::fs::read_to_string(root().join("README.md")).expect("it is there");
    let (lines, words) = (text.lines().count(), text.split_whitespace().count());
    assert!(lines <= 65 && words <= 450, "{lines} lines, {words} words: move something to docs/");
}

/// How hard a page is to read (LIX): 27 for the README, where hyperfine 1.20's has 41 and parking_lot 0.12's 42.
#[test]
fn pages_for_users_read_well() {
    let root = root();
    let mut pages = Vec::new();
    files(&root.join("docs/use"), &[".md"], &mut pages);
    pages.extend(["README.md", "CONTRIBUTING.md", "docs/README.md"].map(|page| root.join(page)));
    let output = run_limited(Command::new(root.join("tests/readability")).args(&pages), LIMIT);
    expect_status(&output, 0);
    let text = stdout(&output);
    assert_eq!(text.lines().count(), pages.len(), "{text}");
    for line in text.lines() {
        let (_, lix) = line.rsplit_once("LIX ").expect("a figure");
        let lix: f64 = lix.parse().expect("a number");
        assert!(lix < 40.0, "{line}: shorter sentences, shorter words");
    }
    // It can tell: a sentence of seven long words and one of two short ones.
    let hard = scratch().join("hard.md");
    std::fs::write(&hard, "# No prose\n\nConsiderable terminological inexactitude characterises intergovernmental communication everywhere.\nGo on.\n\n```\ncode\n```\n").expect("writable");
    let output = run_limited(Command::new(root.join("tests/readability")).arg(&hard), LIMIT);
    assert_eq!(
        stdout(&output),
        format!("{}: 9 words, 4.5 a sentence, 77.8 % long, LIX 82.3\n", hard.display())
    );
}

/// The pages that the book's table of contents has.
fn contents() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/SUMMARY.md")).expect("it is there");
    prose(&text).flat_map(|(_, line)| targets(line).into_iter().map(str::to_owned)).collect()
}

#[test]
fn the_book_and_the_index_have_every_page() {
    let docs = root().join("docs");
    let mut pages = Vec::new();
    files(&docs, &[".md"], &mut pages);
    let name = |page: &PathBuf| page.strip_prefix(&docs).expect("below").to_str().expect("UTF-8").to_owned();
    let there: BTreeSet<String> = pages.iter().map(name).filter(|name| name != "SUMMARY.md").collect();
    let contents = contents();
    let listed: BTreeSet<String> = contents.iter().cloned().collect();
    assert_eq!(contents.len(), listed.len(), "a page is in docs/SUMMARY.md twice");
    assert_eq!(listed, there, "docs/SUMMARY.md (left), the pages (right)");
    let index = std::fs::read_to_string(docs.join("README.md")).expect("it is there");
    let indexed: BTreeSet<String> =
        prose(&index).flat_map(|(_, line)| targets(line)).map(str::to_owned).collect();
    let others: BTreeSet<&String> = there.difference(&indexed).collect();
    assert_eq!(others, BTreeSet::from([&"README.md".to_owned()]), "docs/README.md lacks pages");
}

/// What tags of a page have for this attribute.
fn attributes<'a>(html: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!(" {name}=\"");
    html.split(start.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// Builds the book, and follows every link in it that does not lead to the network.
#[test]
fn the_book_is_built_and_its_links_lead_somewhere() {
    let Some(mdbook) = mdbook() else { return };
    let book = scratch().join("book");
    let output = run_limited(Command::new(mdbook).arg("build").arg("-d").arg(&book).arg(root()), LIMIT);
    expect_status(&output, 0);
    assert!(!stderr(&output).contains("WARN"), "{}", stderr(&output));
    let mut found = Vec::new();
    files(&book, &[".html"], &mut found);
    let texts: BTreeMap<PathBuf, String> = found
        .into_iter()
        // All pages once more, in one, and a page for servers.
        .filter(|path| !path.ends_with("print.html") && !path.ends_with("404.html"))
        .map(|path| (path.clone(), std::fs::read_to_string(path).expect("UTF-8")))
        .collect();
    assert!(texts.len() > contents().len(), "too few pages: {:?}", texts.keys());
    let (mut broken, mut followed) = (Vec::new(), 0);
    for (path, text) in &texts {
        for link in attributes(text, "href").into_iter().chain(attributes(text, "src")) {
            if link.contains("://") {
                continue;
            }
            followed += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let page = if file.is_empty() { path.clone() } else { path.with_file_name(file) };
            // An anchor without a name is the page's top.
            let there = page.canonicalize().is_ok_and(|page| {
                anchor.is_empty()
                    || texts.get(&page).is_some_and(|text| attributes(text, "id").contains(&anchor))
            });
            if !there {
                broken.push(format!("{}: {link}", path.strip_prefix(&book).expect("below").display()));
            }
        }
    }
    assert!(followed > 500, "too few links: {followed}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The tool that makes the book. It is in no package of Debian 12: `.ci/run` builds it.
fn mdbook() -> Option<PathBuf> {
    let found = poundlock_testing::find("mdbook");
    if found.is_none() {
        missing("mdbook", "cargo install mdbook --locked");
    }
    found
}

/// What CONTRIBUTING.md names: files by their paths, switches by the sources that read them.
#[test]
fn files_and_switches_are_there() {
    let root = root();
    let text = std::fs::read_to_string(root.join("CONTRIBUTING.md")).expect("it is there");
    let mut paths = 0;
    for word in text.split(['`', '(', ')']).filter(|word| !word.contains([' ', '\n'])) {
        let is_path =
            ["crates/", "docs/", "tests/", ".ci/", "./"].iter().any(|start| word.starts_with(start));
        if is_path && !word.contains("NAME") {
            paths += 1;
            assert!(root.join(word).exists(), "there is no {word}");
        }
    }
    assert!(paths > 20, "{paths} paths were found");
    let sources = [
        "crates/model/src/explore.rs",
        "crates/sim/tests/locks.rs",
        "crates/model/tests/semarray/histories.rs",
        "crates/model/tests/arrays/histories.rs",
        "crates/cli/tests/dropin/semarray.rs",
        "crates/cli/tests/torture.rs",
        "crates/testing/src/need.rs",
        "crates/order/tests/order/main.rs",
        "crates/peers/build.rs",
        "crates/linux/src/node.rs",
    ];
    let sources: String =
        sources.iter().filter_map(|path| std::fs::read_to_string(root.join(path)).ok()).collect();
    for switch in text.split(['`', '=', ' ']).filter(|word| word.starts_with("POUNDLOCK_")) {
        assert!(sources.contains(switch), "nothing reads {switch}");
    }
}

/// Where a manifest says that a library is without tests, so that none is built, it is.
#[test]
fn no_test_is_left_out() {
    let mut manifests = Vec::new();
    files(&root().join("crates"), &["Cargo.toml"], &mut manifests);
    for manifest in manifests {
        if std::fs::read_to_string(&manifest).expect("UTF-8").contains("[lib]\ntest = false\n") {
            let mut sources = Vec::new();
            files(&manifest.with_file_name("src"), &[".rs"], &mut sources);
            for path in sources {
                let text = std::fs::read_to_string(&path).expect("UTF-8");
                assert!(!text.contains("#[test]"), "{} is never run", path.display());
            }
        }
    }
}

/// What the hosted runner is told to run is there.
#[test]
fn the_workflow_runs_what_developers_run() {
    let root = root();
    let text = std::fs::read_to_string(root.join(".github/workflows/ci.yml")).expect("it is there");
    let commands =
        text.lines().find_map(|line| line.trim().strip_prefix("command: [")).expect("the commands");
    let commands: Vec<&str> = commands.trim_end_matches(']').split(", ").collect();
    assert_eq!(commands, [".ci/run", "./test aarch64"]);
    assert!(text.contains("- run: ${{ matrix.command }}"));
    for script in [".ci/run", "test"] {
        assert!(root.join(script).is_file(), "{script}");
    }
}
