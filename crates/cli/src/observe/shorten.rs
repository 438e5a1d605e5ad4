//! Names of functions and types as programmers say them.
//!
//! Demanglers spell out what a compiler knows: `std::__cxx11::basic_string<char, std::char_traits<char>,
//! std::allocator<char> >` for `std::string`. [`shorten`] removes what a reader adds without thinking, and
//! then elides what is too wide, so that the function's own name stays to the end. [`fit`] does so with a
//! place, a name with words around it and a line behind it, which stays whole.
//!
//! A shortened name is never wider than the name, and its brackets are balanced if the name's are. To shorten
//! it again changes nothing. The tests have properties for any text, and a table of names from compilers.

use std::borrow::Cow;

use unicode_width::UnicodeWidthStr as _;

/// Columns of a function's name in reports.
pub(crate) const COLUMNS: usize = 72;

/// What stands for what was left out.
const ELISION: &str = "...";

/// Namespaces that are written by no programmer: versions of a library.
const INLINE: [&str; 5] = ["__cxx11", "__1", "__ndk1", "_V2", "__fs"];

/// Arguments of Boost's templates that stand for none.
const FILLERS: [&str; 4] =
    ["mpl_::na", "boost::mpl::na", "boost::detail::variant::void_", "boost::tuples::null_type"];

/// Modules of Rust's standard library.
const RUST_MODULES: [&str; 43] = [
    "alloc",
    "any",
    "array",
    "backtrace",
    "borrow",
    "boxed",
    "cell",
    "char",
    "clone",
    "cmp",
    "collections",
    "convert",
    "env",
    "error",
    "ffi",
    "fmt",
    "fs",
    "future",
    "hash",
    "io",
    "iter",
    "marker",
    "mem",
    "net",
    "ops",
    "option",
    "panic",
    "panicking",
    "path",
    "pin",
    "process",
    "ptr",
    "range",
    "raw_vec",
    "rc",
    "result",
    "slice",
    "str",
    "string",
    "sync",
    "task",
    "time",
    "vec",
];

/// Units of `std::chrono`, by the ratio to a second.
const DURATIONS: [(&str, &str); 6] = [
    ("1, 1000000000", "nanoseconds"),
    ("1, 1000000", "microseconds"),
    ("1, 1000", "milliseconds"),
    ("1, 1", "seconds"),
    ("60, 1", "minutes"),
    ("3600, 1", "hours"),
];

/// The columns that a text takes.
pub(crate) fn columns_of(text: &str) -> usize {
    text.width()
}

/// A name as programmers say it, in no more than so many columns. `lambdas` has the places of the lambdas in
/// it, as far as they are known, in their order: `shop.cpp:88`.
pub(crate) fn shorten(name: &str, columns: usize, lambdas: &[Option<String>]) -> String {
    let mut text = shorten_once(name, columns, &mut lambdas.iter());
    // What was elided may have become the same as something else.
    loop {
        let next = shorten_once(&text, columns, &mut [].iter());
        if next == text {
            return text;
        }
        text = next;
    }
}

fn shorten_once(name: &str, columns: usize, places: &mut Places) -> String {
    let simple = simple(name, places);
    // In what is no name two words may have met.
    let is_damaged = tokens(name).is_some() && tokens(&simple).is_none();
    elide(if is_damaged { name } else { &simple }, columns)
}

/// How many lambdas a name has whose places [`shorten`] would show.
pub(crate) fn lambdas_in(name: &str) -> usize {
    const MOST: usize = 64;
    let none = [const { None }; MOST];
    let mut places = none.iter();
    simple(name, &mut places);
    MOST - places.len()
}

/// A name without parameters, qualifiers and what it returns: `app::Table::get<app::Block>`.
pub(crate) fn bare(function: &str) -> Cow<'_, str> {
    let Some(tokens) = tokens(function) else { return Cow::Borrowed(function) };
    let (mut path, mut converts) = (String::new(), false);
    for (at, token) in tokens.iter().enumerate() {
        let rest = &tokens[at + 1..];
        match token {
            Token::Space if converts || qualifies_scope(rest) => converts = false,
            Token::Word("const" | "volatile") if qualifies_scope(&tokens[at..]) => {}
            Token::Space if !path.is_empty() && rest.iter().all(is_qualifier) => return Cow::Owned(path),
            Token::Space => path.clear(),
            Token::Word("operator") if matches!(rest, [Token::Space, Token::Word(_), ..]) => {
                converts = true;
                path.push_str("operator ");
            }
            Token::Group('(', inner) if *inner == "anonymous namespace" || starts_with_dot(rest) => {
                path.push_str(token.text(function));
            }
            // Parameters: of a function around a local name, or of the function itself.
            Token::Group('(', _) if path.is_empty() || path == "decltype" => path.clear(),
            Token::Group('(', _) if begins_scope(rest) || qualifies_scope(rest) => {}
            Token::Group('(', _) => return Cow::Owned(path),
            token => path.push_str(token.text(function)),
        }
    }
    if path.is_empty() { Cow::Borrowed(function) } else { Cow::Owned(path) }
}

/// A place in no more than so many columns: words with a name among them and a line behind it. `taken in
/// app::Table<...>::get (table.cpp:14), readers`. The name is elided first, then the directories.
pub(crate) fn fit(place: &str, columns: usize) -> String {
    let mut parts: Vec<String> = split(place, ' ').into_iter().map(str::to_owned).collect();
    let wide = |parts: &[String]| parts.iter().map(|part| columns_of(part) + 1).sum::<usize>() - 1;
    // What remains of names in each round; directories go in the one without.
    for least in [Some(24), None, Some(8)] {
        loop {
            let over = wide(&parts).saturating_sub(columns);
            let is_next = |part: &&mut String| match least {
                Some(least) => !part.starts_with('(') && columns_of(part) > least,
                None => part.starts_with('(') && part.contains('/'),
            };
            let widest = parts.iter_mut().filter(is_next).max_by_key(|part| columns_of(part));
            let Some(widest) = widest.filter(|_| over > 0) else { break };
            let room = columns_of(widest).saturating_sub(over).max(least.unwrap_or(0));
            let short = match (least, widest.rsplit_once('/')) {
                (None, Some((_, file))) => format!("({file}"),
                _ => shorten(widest, room, &[]),
            };
            if columns_of(&short) >= columns_of(widest) {
                break;
            }
            *widest = short;
        }
    }
    // The words before the name are the next to go.
    while wide(&parts) > columns && parts.len() > 1 && !parts[0].starts_with('(') {
        parts.remove(0);
    }
    let text = parts.join(" ");
    if columns_of(&text) > columns { cut(&text, columns) } else { text }
}

/// A part of a name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Token<'t> {
    Word(&'t str),
    Scope,
    /// The opening bracket, and what is inside.
    Group(char, &'t str),
    Space,
    Mark(&'t str),
}

impl<'t> Token<'t> {
    /// As it stands in the text that it is of.
    fn text(&self, of: &'t str) -> &'t str {
        match self {
            Token::Word(text) | Token::Mark(text) => text,
            Token::Scope => "::",
            Token::Space => " ",
            Token::Group(_, inner) => {
                let start = inner.as_ptr() as usize - of.as_ptr() as usize - 1;
                &of[start..start + inner.len() + 2]
            }
        }
    }
}

/// A word, as in a name: also of a lambda (`'lambda'`) or of an operator (`operator<<`).
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '~' | '\'' | '.' | '#' | '@' | '!') || !c.is_ascii()
}

/// The tokens of a text outside of brackets; `None` if these are not balanced.
fn tokens(text: &str) -> Option<Vec<Token<'_>>> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let token = if rest.starts_with("::") {
            Token::Scope
        } else if rest.starts_with("->") {
            Token::Mark(&rest[..2])
        } else if is_word(c) {
            Token::Word(&rest[..word_end(rest)])
        } else if "<([{".contains(c) {
            let end = closing(rest)?;
            Token::Group(c, &rest[1..end])
        } else if ">)]}".contains(c) {
            return None;
        } else if c == ' ' {
            Token::Space
        } else {
            Token::Mark(&rest[..c.len_utf8()])
        };
        at += token.text(text).len();
        tokens.push(token);
    }
    Some(tokens)
}

/// Where the word that a text begins with ends.
fn word_end(text: &str) -> usize {
    let end = text.find(|c| !is_word(c)).unwrap_or(text.len());
    let Some(after) = text[..end].ends_with("operator").then(|| &text[end..]) else { return end };
    if text[..end].strip_suffix("operator").is_some_and(|before| before.ends_with(is_word)) {
        return end;
    }
    const SIGNS: [&str; 14] =
        ["<=>", "<<=", ">>=", "->*", "()", "[]", "<<", ">>", "<=", ">=", "->", "<", ">", "=="];
    let sign = SIGNS.iter().find(|sign| after.starts_with(**sign));
    end + sign.map_or(0, |sign| sign.len())
}

/// Where the bracket that a text begins with is closed.
fn closing(text: &str) -> Option<usize> {
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        at += c.len_utf8();
        match c {
            '-' if rest.starts_with("->") => at += 1,
            '<' => open.push('>'),
            '(' => open.push(')'),
            '[' => open.push(']'),
            '{' => open.push('}'),
            '>' | ')' | ']' | '}' => {
                if open.pop() != Some(c) {
                    return None;
                }
                if open.is_empty() {
                    return Some(at - 1);
                }
            }
            _ if is_word(c) => at += word_end(rest) - c.len_utf8(),
            _ => {}
        }
    }
    None
}

/// What is between separators outside of brackets; the whole if these are not balanced.
fn split(text: &str, separator: char) -> Vec<&str> {
    let Some(tokens) = tokens(text) else { return vec![text] };
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    for token in tokens {
        let of_token = token.text(text);
        if of_token.chars().eq([separator]) {
            parts.push(&text[start..at]);
            start = at + of_token.len();
        }
        at += of_token.len();
    }
    parts.push(&text[start..]);
    parts
}

fn begins_scope(tokens: &[Token]) -> bool {
    tokens.first() == Some(&Token::Scope)
}

/// Go's methods: `main.(*Pool).run`.
fn starts_with_dot(tokens: &[Token]) -> bool {
    matches!(tokens.first(), Some(Token::Word(word)) if word.starts_with('.'))
}

/// Whether a function's qualifiers come, and then what is local to it: ` const::Guard`.
fn qualifies_scope(tokens: &[Token]) -> bool {
    let after = tokens.iter().position(|token| !is_qualifier(token));
    after.is_some_and(|at| at > 0 && tokens[at] == Token::Scope)
}

fn is_qualifier(token: &Token) -> bool {
    matches!(token, Token::Space | Token::Word("const" | "volatile" | "noexcept") | Token::Mark("&"))
}

/// A part of a path between `::`.
#[derive(Clone, Debug, Default)]
struct Segment<'t> {
    word: &'t str,
    /// In brackets of each kind: arguments of a template, parameters, tags.
    groups: Vec<(char, &'t str)>,
}

impl<'t> Segment<'t> {
    /// What it is, if it is in brackets and has no word.
    fn in_brackets(&self, bracket: char) -> Option<&'t str> {
        let (first, inner) = self.groups.first().filter(|_| self.word.is_empty())?;
        (*first == bracket).then_some(*inner)
    }

    /// A lambda of C++, as demanglers and compilers write it.
    fn is_lambda(&self, calls: bool) -> bool {
        let starts = |inner: &str| inner.starts_with("lambda(") || inner.starts_with("lambda#");
        self.in_brackets('{').is_some_and(starts)
            || self.in_brackets('<').is_some_and(|inner| inner.starts_with("lambda("))
            || self.word.starts_with("'lambda") && self.groups.first().is_some_and(|(kind, _)| *kind == '(')
            || calls && self.word.strip_prefix("$_").is_some_and(|rest| rest.parse::<u32>().is_ok())
    }

    /// A closure of Rust.
    fn is_closure(&self) -> bool {
        let is = |inner: &str| {
            inner == "{closure}" || inner.starts_with("closure#") || inner.starts_with("closure_env#")
        };
        self.in_brackets('{').is_some_and(is)
    }

    /// What calls a lambda.
    fn is_call(&self) -> bool {
        matches!(self.word, "operator()" | "_FUN" | "__invoke")
    }
}

/// The places of lambdas that come.
type Places<'p> = std::slice::Iter<'p, Option<String>>;

/// A text with all of its names made simple.
fn simple(text: &str, places: &mut Places) -> String {
    let Some(tokens) = tokens(text) else { return text.to_owned() };
    let mut out = String::new();
    let mut at = 0;
    while at < tokens.len() {
        match tokens[at] {
            // ` [clone .cold]`
            Token::Space if matches!(tokens.get(at + 1), Some(Token::Group('[', inner)) if inner.starts_with("clone ")) =>
            {
                at += 2;
            }
            token @ (Token::Space | Token::Mark(_)) => {
                out.push_str(token.text(text));
                at += 1;
            }
            _ => {
                let (segments, global, next) = path(&tokens, at);
                let whole = &text[offset(text, &tokens, at)..offset(text, &tokens, next)];
                let path = simple_path(segments, places);
                let path = if global { format!("::{path}") } else { path };
                // A place of a lambda may be longer than the name; nothing else is.
                let grows = columns_of(&path) > columns_of(whole) && !path.contains("{lambda at ");
                out.push_str(if grows { whole } else { &path });
                at = next;
            }
        }
    }
    out
}

/// Where a token begins in the text.
fn offset(text: &str, tokens: &[Token], at: usize) -> usize {
    tokens[..at].iter().map(|token| token.text(text).len()).sum()
}

/// The path that begins with a token, whether it begins with `::`, and which token comes after it.
fn path<'t>(tokens: &[Token<'t>], start: usize) -> (Vec<Segment<'t>>, bool, usize) {
    let global = tokens[start] == Token::Scope;
    let mut segments: Vec<Segment> = Vec::new();
    let mut at = start;
    let mut fresh = true;
    while let Some(token) = tokens.get(at) {
        match *token {
            Token::Scope => fresh = true,
            Token::Word(word) if fresh => {
                segments.push(Segment { word, groups: Vec::new() });
                fresh = false;
            }
            Token::Group(kind, inner) => {
                // Rust writes a function's arguments as `::<T>`.
                let is_turbofish = kind == '<'
                    && fresh
                    && !inner.starts_with("lambda(")
                    && !inner.starts_with("impl ")
                    && segments.last().is_some_and(|last| last.groups.is_empty() && !last.word.is_empty());
                if fresh && !is_turbofish {
                    segments.push(Segment::default());
                }
                fresh = false;
                segments.last_mut().expect("one was pushed").groups.push((kind, inner));
            }
            Token::Space if !fresh && qualifies_scope(&tokens[at..]) => {
                at += tokens[at..].iter().take_while(|token| is_qualifier(token)).count();
                continue;
            }
            _ => break,
        }
        at += 1;
    }
    (segments, global, at.max(start + 1))
}

/// A path as programmers say it.
fn simple_path(segments: Vec<Segment>, places: &mut Places) -> String {
    let last = segments.len().saturating_sub(1);
    let mut kept: Vec<Segment> = Vec::new();
    for (at, mut segment) in segments.into_iter().enumerate() {
        // Versions of libraries, and hashes of Rust's names.
        let is_version = INLINE.contains(&segment.word)
            || segment.word.strip_prefix("lts_").is_some_and(|rest| rest.parse::<u64>().is_ok());
        let is_hash = segment.word.len() == 17
            && segment.word.starts_with('h')
            && segment.word[1..].bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_shim = segment.in_brackets('{').is_some_and(|inner| inner.contains("vtable"));
        let is_dropped = segment.groups.is_empty() && (is_version && at < last || is_hash && at == last)
            || is_shim && at == last;
        if is_dropped && !kept.is_empty() {
            continue;
        }
        segment.groups.retain(|(kind, inner)| {
            let is_tag = inner.starts_with("abi:")
                || inner.len() >= 8 && inner.bytes().all(|byte| byte.is_ascii_hexdigit());
            !(*kind == '[' && is_tag)
        });
        // Parameters of a function around a local name.
        if at < last && !segment.word.is_empty() && !segment.word.starts_with("'lambda") {
            segment.groups.retain(|(kind, _)| *kind != '(');
        }
        kept.push(segment);
    }
    let calls = |at: usize| kept.get(at + 1).is_some_and(Segment::is_call);
    let is_lambda = |at: usize| kept[at].is_lambda(calls(at));
    let inner = |at: &usize| is_lambda(*at) || kept[*at].is_closure();
    let (Some(first), Some(innermost)) = ((0..kept.len()).find(inner), (0..kept.len()).rfind(inner)) else {
        return plain_path(&kept, places);
    };
    let noun = if is_lambda(innermost) { "lambda" } else { "closure" };
    let within: Vec<&Segment> = kept[..first].iter().collect();
    let place = if noun == "lambda" { places.next().cloned().flatten() } else { None };
    let mut text = match place {
        Some(place) => format!("{{lambda at {place}}}"),
        None => {
            let within = within
                .iter()
                .map(|segment| Segment { word: segment.word, groups: without_arguments(segment) });
            let within = plain_path(&within.collect::<Vec<_>>(), &mut [].iter());
            let short = last_two(&within);
            if short.is_empty() { format!("{{{noun}}}") } else { format!("{{{noun} in {short}}}") }
        }
    };
    let after =
        kept[innermost + 1..].iter().skip_while(|segment| segment.is_call()).cloned().collect::<Vec<_>>();
    if !after.is_empty() {
        text.push_str("::");
        text.push_str(&plain_path(&after, places));
    }
    text
}

/// What of a segment is no argument of a template.
fn without_arguments<'t>(segment: &Segment<'t>) -> Vec<(char, &'t str)> {
    let keeps = |kind: &char| segment.word.is_empty() || *kind != '<';
    segment.groups.iter().filter(|(kind, _)| keeps(kind)).copied().collect()
}

/// The last two parts of a path.
fn last_two(path: &str) -> &str {
    let Some(tokens) = tokens(path) else { return path };
    let scopes: Vec<usize> = (0..tokens.len()).filter(|&at| tokens[at] == Token::Scope).collect();
    match scopes[..] {
        [.., before, _] => &path[offset(path, &tokens, before) + 2..],
        _ => path,
    }
}

/// A path in which no lambda is.
fn plain_path(segments: &[Segment], places: &mut Places) -> String {
    let segments = rust_path(segments);
    let mut parts: Vec<String> = Vec::new();
    let library = segments.first().map_or("", |first| first.word);
    for segment in &segments {
        let mut text = segment.word.to_owned();
        for (at, (kind, inner)) in segment.groups.iter().enumerate() {
            let is_arguments = *kind == '<' && at == 0 && !segment.word.is_empty();
            if is_arguments {
                let mut arguments: Vec<String> =
                    split(inner, ',').into_iter().map(|argument| simple(argument.trim(), places)).collect();
                if matches!(library, "std" | "boost" | "__gnu_cxx") {
                    drop_defaults(segment.word, &mut arguments);
                }
                match alias(library, segment.word, &arguments) {
                    Some(alias) => text = alias,
                    None if arguments.is_empty() => {}
                    None => text = format!("{text}<{}>", arguments.join(", ")),
                }
            } else {
                let close = match kind {
                    '<' => '>',
                    '(' => ')',
                    '[' => ']',
                    _ => '}',
                };
                // Names of places are no names of functions.
                let inner = if *kind == '{' { (*inner).to_owned() } else { simple(inner, places) };
                text = format!("{text}{kind}{}{close}", inner.trim_end());
            }
        }
        parts.push(text);
    }
    parts.join("::")
}

/// Leaves out the wrappers of Rust's names: `<T as Trait>`, `<impl T>`, and the modules of its library.
fn rust_path<'t>(segments: &[Segment<'t>]) -> Vec<Segment<'t>> {
    let mut segments = segments.to_vec();
    // Of an implementation the modules around it say nothing.
    if let Some(at) = segments
        .iter()
        .rposition(|segment| segment.in_brackets('<').is_some_and(|inner| inner.starts_with("impl ")))
    {
        segments.drain(..at);
    }
    if let Some(inner) =
        segments.first().filter(|_| segments.len() > 1).and_then(|first| first.in_brackets('<'))
    {
        let inner = inner.strip_prefix("impl ").unwrap_or(inner);
        let of = match (inner.split_once(" for "), split(inner, ' ').iter().position(|word| *word == "as")) {
            (Some((_, of)), _) => of,
            (None, Some(at)) => split(inner, ' ')[..at].last().copied().unwrap_or_default(),
            (None, None) => inner,
        };
        let tokens = tokens(of.trim_start_matches('&').trim_start_matches("mut "));
        if let Some(tokens) = tokens.filter(|tokens| !tokens.is_empty()) {
            let (own, global, end) = path(&tokens, 0);
            if end == tokens.len() && !global {
                segments.splice(..1, own);
            }
        }
    }
    let module = |at: usize| {
        segments.get(at).filter(|segment| segment.groups.is_empty()).map_or("", |segment| segment.word)
    };
    if matches!(module(0), "core" | "alloc" | "std")
        && (RUST_MODULES.contains(&module(1)) || module(1) == "thread")
    {
        let is_type = |segment: &Segment| segment.word.starts_with(|c: char| c.is_ascii_uppercase());
        let is_module = |segment: &Segment| {
            segment.groups.is_empty()
                && segment.word.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        };
        match segments.iter().position(is_type) {
            Some(at) if segments[..at].iter().all(is_module) => drop(segments.drain(..at)),
            None if module(0) != "std" && segments.len() > 2 => drop(segments.remove(0)),
            _ => {}
        }
    }
    segments
}

/// Leaves out the arguments at the end that a template would have without being told.
fn drop_defaults(template: &str, arguments: &mut Vec<String>) {
    while let [first, .., last] = &arguments[..] {
        let (name, of) = match last.split_once('<') {
            Some((name, rest)) => (name, rest.strip_suffix('>').unwrap_or(rest)),
            None => (last.as_str(), ""),
        };
        let is_default = match name {
            "std::allocator" | "std::pmr::polymorphic_allocator" if template != "allocator_traits" => {
                name == "std::allocator"
            }
            "std::char_traits"
            | "std::less"
            | "std::hash"
            | "boost::hash"
            | "std::equal_to"
            | "std::default_delete"
            | "std::regex_traits" => of == first,
            "std::deque" => matches!(template, "queue" | "stack") && of == first,
            "std::vector" => template == "priority_queue" && of == first,
            "std::chrono::nanoseconds" => template == "time_point",
            _ => FILLERS.contains(&last.as_str()),
        };
        if !is_default {
            return;
        }
        arguments.pop();
    }
}

/// The name that a library has for a template with these arguments.
fn alias(library: &str, template: &str, arguments: &[String]) -> Option<String> {
    if library != "std" {
        return None;
    }
    let [first, rest @ ..] = arguments else { return None };
    match (template.strip_prefix("basic_"), rest) {
        (Some(of), []) => match (first.as_str(), of) {
            ("char", _) => Some(of.to_owned()),
            ("wchar_t", _) => Some(format!("w{of}")),
            ("char8_t" | "char16_t" | "char32_t", "string" | "string_view") => {
                Some(format!("u{}{of}", first.trim_start_matches("char").trim_end_matches("_t")))
            }
            _ => None,
        },
        _ if template == "duration" && matches!(first.as_str(), "long" | "long long") => match rest {
            [] => Some("seconds".to_owned()),
            [ratio, ..] => {
                let ratio = ratio.strip_prefix("std::ratio<")?.strip_suffix('>')?;
                // `1l`, and `(long)1`
                let digits = |number: &str| number.chars().filter(char::is_ascii_digit).collect::<String>();
                let ratio = ratio.split(", ").map(digits).collect::<Vec<_>>().join(", ");
                DURATIONS.iter().find(|(of, _)| *of == ratio).map(|(_, name)| (*name).to_owned())
            }
        },
        _ => None,
    }
}

/// A text in no more than so many columns: arguments of templates go first, inner ones before outer ones,
/// then the middle of the path, and then the middle of the name.
fn elide(text: &str, columns: usize) -> String {
    let fits = |text: &str| columns_of(text) <= columns;
    if fits(text) {
        return text.to_owned();
    }
    if tokens(text).is_none() {
        return cut(text, columns);
    }
    let mut text = text.to_owned();
    for level in (0..depth(&text)).rev() {
        let all = collapse(&text, level, usize::MAX);
        if level > 0 || fits(&all) {
            // The first ones are the class's: of them less is lost.
            let lists = if level == 0 { count(&text) } else { 0 };
            let some = (1..lists).map(|most| collapse(&text, level, most)).find(|some| fits(some));
            if fits(&all) {
                return some.unwrap_or(all);
            }
        }
        text = all;
    }
    let parts = scopes(&text);
    for gone in 1..parts.len().saturating_sub(1) {
        let some = [&parts[..1], &[ELISION], &parts[gone + 1..]].concat().join("::");
        if fits(&some) {
            return some;
        }
    }
    if let [.., last] = parts[..]
        && parts.len() > 1
    {
        let some = format!("{ELISION}::{last}");
        if fits(&some) {
            return some;
        }
        if fits(last) {
            return last.to_owned();
        }
    }
    cut(parts.last().copied().unwrap_or(&text), columns)
}

/// The parts of a path.
fn scopes(text: &str) -> Vec<&str> {
    let Some(tokens) = tokens(text) else { return vec![text] };
    let (mut parts, mut start, mut at) = (Vec::new(), 0, 0);
    for token in tokens {
        let length = token.text(text).len();
        if token == Token::Scope && at > start {
            parts.push(&text[start..at]);
            start = at + length;
        }
        at += length;
    }
    parts.push(&text[start..]);
    parts
}

/// How deep template arguments are nested.
fn depth(text: &str) -> usize {
    let groups = tokens(text).unwrap_or_default().into_iter();
    let inner = groups.filter_map(|token| match token {
        Token::Group('<', inner) => Some(1 + depth(inner)),
        Token::Group(_, inner) => Some(depth(inner)),
        _ => None,
    });
    inner.max().unwrap_or(0)
}

/// How many lists of template arguments there are outside of others.
fn count(text: &str) -> usize {
    tokens(text).unwrap_or_default().iter().filter(|token| matches!(token, Token::Group('<', _))).count()
}

/// Elides the lists of template arguments that are inside of so many others, the first ones.
fn collapse(text: &str, level: usize, most: usize) -> String {
    let Some(tokens) = tokens(text) else { return text.to_owned() };
    let (mut out, mut left) = (String::new(), most);
    for token in tokens {
        match token {
            Token::Group('<', inner) if level == 0 && left > 0 => {
                left -= 1;
                let is_short = columns_of(inner) <= ELISION.len();
                out.push_str(&format!("<{}>", if is_short { inner } else { ELISION }));
            }
            Token::Group('<', inner) if level > 0 => {
                out.push_str(&format!("<{}>", collapse(inner, level - 1, most)))
            }
            Token::Group('(', inner) => out.push_str(&format!("({})", collapse(inner, level, most))),
            token => out.push_str(token.text(text)),
        }
    }
    out
}

/// A text with its middle cut out. What opens or closes nothing any more goes, too.
fn cut(text: &str, columns: usize) -> String {
    let room = columns.saturating_sub(ELISION.len());
    // More is kept of the end, where names differ.
    let (head, tail) = if room == 0 { (columns, 0) } else { (room / 3, room - room / 3) };
    let fits = |part: &&str, room: usize| columns_of(part) <= room;
    let starts = text.char_indices().map(|(at, c)| &text[..at + c.len_utf8()]);
    let head = starts.take_while(|part| fits(part, head)).last().unwrap_or("");
    let ends = text.char_indices().rev().map(|(at, _)| &text[at..]);
    let tail = ends.take_while(|part| fits(part, tail)).last().unwrap_or("");
    let cut = if room == 0 { head.to_owned() } else { format!("{head}{ELISION}{tail}") };
    if tokens(&cut).is_some() { cut } else { cut.replace(['<', '>', '(', ')', '[', ']', '{', '}'], "") }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::{bare, columns_of, fit, shorten, tokens};
    use crate::observe::symbols::readable;

    /// Narrower than in a report, so that more is elided.
    const COLUMNS: usize = 60;

    /// Names from compilers, and how they are said.
    const NAMES: [(&str, &str); 44] = [
        // libstdc++
        (
            "_ZN4shop5CacheIiNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEE3getIPFS6_iEEES6_RKiT_",
            "shop::Cache<int, std::string>::get<std::string (*)(int)>",
        ),
        ("_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int>::push_back"),
        (
            "_ZNSt3mapINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEiSt4lessIS5_ESaISt4pairIKS5_iEEEixERS9_",
            "std::map<std::string, int>::operator[]",
        ),
        (
            "_ZNSt13unordered_mapINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEiSt4hashIS5_ESt8equal_toIS5_ESaISt4pairIKS5_iEEE4findERS9_",
            "std::unordered_map<std::string, int>::find",
        ),
        (
            "_ZNSt10unique_ptrIN4shop6LedgerESt14default_deleteIS1_EED2Ev",
            "std::unique_ptr<shop::Ledger>::~unique_ptr",
        ),
        ("_ZNSt5queueIiSt5dequeIiSaIiEEE4pushERKi", "std::queue<int>::push"),
        ("_ZNSt14priority_queueIiSt6vectorIiSaIiEESt4lessIiEE3popEv", "std::priority_queue<int>::pop"),
        ("_ZNSt15basic_streambufIcSt11char_traitsIcEE9pbackfailEi", "std::streambuf::pbackfail"),
        ("_ZNKSt7__cxx1112basic_stringIwSt11char_traitsIwESaIwEE8capacityEv", "std::wstring::capacity"),
        ("_ZN4shop6renderB5cxx11Ei", "shop::render"),
        ("_ZNSt10filesystem7__cxx114path6appendEPKc", "std::filesystem::path::append"),
        (
            "_ZN3app4waitERKNSt6chrono10time_pointINS0_3_V212steady_clockENS0_8durationIlSt5ratioILl1ELl1000000000EEEEEE",
            "app::wait",
        ),
        (
            "_ZN3app5TimerINSt6chrono8durationIlSt5ratioILl1ELl1000EEEEE3runEv",
            "app::Timer<std::chrono::milliseconds>::run",
        ),
        (
            "_ZN3app3mapISt3mapIiiSt7greaterIiESaISt4pairIKiiEEEE3getEv",
            "app::map<std::map<int, int, std::greater<int>>>::get",
        ),
        ("_ZlsRSoRKN3app5BlockE", "operator<<"),
        ("_ZNK3appltERKS_", "app::operator<"),
        ("_ZNK3app5BlockcvbEv", "app::Block::operator bool"),
        // Lambdas
        (
            "_ZNSt6thread11_State_implINS_8_InvokerISt5tupleIJZ4mainEUlvE0_EEEEE6_M_runEv",
            "std::thread::_State_impl<std::thread::_Invoker<...>>::_M_run",
        ),
        ("_ZZN4shop4Shop5serveEiENKUlvE_clEv", "{lambda in Shop::serve}"),
        (
            "_ZZZ4mainENKUlvE_clEvENKUlRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEE_clES6_",
            "{lambda in main}",
        ),
        ("_ZZ4mainENK3$_0clEv", "{lambda in main}"),
        ("_ZZN3app4PoolIiE5startEvENUlPvE_4_FUNES2_", "{lambda in Pool::start}"),
        ("main(int, char**)::<lambda()>::operator()", "{lambda in main}"),
        // libc++
        ("_ZNSt3__16vectorIiNS_9allocatorIiEEE9push_backB8ne180100EOi", "std::vector<int>::push_back"),
        ("_ZNSt3__112basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEE6appendEPKc", "std::string::append"),
        (
            "_ZNSt3__13mapINS_12basic_stringIcNS_11char_traitsIcEENS_9allocatorIcEEEEiNS_4lessIS6_EENS4_INS_4pairIKS6_iEEEEE4findERSA_",
            "std::map<std::string, int>::find",
        ),
        // Boost
        (
            "_ZN5boost13match_resultsIPKcSaINS_9sub_matchIS2_EEEE12maybe_assignERKS6_",
            "boost::match_results<char const*>::maybe_assign",
        ),
        (
            "_ZN5boost9unordered13unordered_mapIiiNS_4hashIiEESt8equal_toIiESaISt4pairIKiiEEE5clearEv",
            "boost::unordered::unordered_map<int, int>::clear",
        ),
        // Rust, both manglings
        (
            "_ZN4core3ptr42drop_in_place$LT$alloc..string..String$GT$17h0123456789abcdefE",
            "ptr::drop_in_place<String>",
        ),
        (
            "_ZN105_$LT$std..thread..lifecycle..spawn_unchecked..MaybeDangling$LT$T$GT$$u20$as$u20$core..ops..drop..Drop$GT$4drop17h03fef4b1d29dfbebE",
            "MaybeDangling<T>::drop",
        ),
        ("_ZN3std4sync6poison5mutex14Mutex$LT$T$GT$4lock17h0123456789abcdefE", "Mutex<T>::lock"),
        (
            "_ZN3app4pool6worker28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE",
            "{closure in pool::worker}",
        ),
        (
            "_ZN3std6thread7Builder16spawn_unchecked_28_$u7b$$u7b$closure$u7d$$u7d$28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE",
            "{closure in Builder::spawn_unchecked_}",
        ),
        (
            "_RINvNtCsgEmfK2I1SDS_4core3ptr13drop_in_placeINtNtCslNYArtu3iFV_5alloc4sync3ArcINtNtNtNtCsjrHSEGnQ3l9_3std4sync6poison5mutex5MutexINtNtBL_3vec3VechEEEEB1n_",
            "ptr::drop_in_place<Arc<Mutex<Vec<u8>>>>",
        ),
        ("_RNCNvNtCs1234_3app4pool6worker0B5_", "{closure in pool::worker}"),
        ("core::slice::<impl [T]>::iter", "[T]::iter"),
        (
            "serde_core::ser::impls::<impl serde_core::ser::Serialize for alloc::string::String>::serialize",
            "String::serialize",
        ),
        // The Java machine, V8, MariaDB
        (
            "_ZN14ShenandoahMark14mark_loop_workI25ShenandoahMarkRefsClosureIL24ShenandoahGenerationType0EELS2_0ELb0EL15StringDedupMode1EEEvPT_PtjP14TaskTerminatorPN11StringDedup8RequestsE",
            "ShenandoahMark::mark_loop_work<...>",
        ),
        (
            "_ZN2v88internal8compiler22MachineOperatorBuilder16I16x8SConvertI32Ev",
            "v8::...::compiler::MachineOperatorBuilder::I16x8SConvertI32",
        ),
        (
            "_ZN4node12_GLOBAL__N_120PlatformWorkerThreadEPv",
            "node::(anonymous namespace)::PlatformWorkerThread",
        ),
        (
            "_ZZZZN4node9inspector5Agent5StartERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS_12DebugOptionsESt10shared_ptrINS_15ExclusiveAccessINS_8HostPortENS_9MutexBaseINS_16LibuvMutexTraitsEEEEEEbENKUlPvE_clESL_ENKUlP10uv_async_sE_clESO_E20error_and_abort_args",
            "{lambda in Agent::Start}::error_and_abort_args",
        ),
        (
            "_ZN5tpool19thread_pool_generic11worker_mainEPNS_11worker_dataE",
            "tpool::thread_pool_generic::worker_main",
        ),
        (
            "_ZZN3fmt2v96detail14do_write_floatINS0_8appenderENS1_9dragonbox10decimal_fpIdEEcNS1_14digit_groupingIcEEEET_S9_RKT0_RKNS0_18basic_format_specsIT1_EENS1_11float_specsENS1_10locale_refEENKUlS3_E0_clES3_",
            "{lambda in detail::do_write_float}",
        ),
        ("pthread_mutex_lock", "pthread_mutex_lock"),
    ];

    #[test]
    fn names_of_compilers_are_said_as_programmers_say_them() {
        for (name, said) in NAMES {
            let function = readable(name);
            assert_eq!(shorten(&bare(&function), COLUMNS, &[]), said, "{function}");
        }
    }

    #[test]
    fn a_lambda_is_known_by_its_line() {
        let place = [Some("shop.cpp:88".to_owned())];
        for (name, said) in [
            ("main::{lambda()#1}::operator()", "{lambda at shop.cpp:88}"),
            (
                "shop::Cache<std::string, int>::get<main::{lambda()#1}::operator()() const::{lambda(int)#1}>",
                "shop::Cache<std::string, int>::get<{lambda at shop.cpp:88}>",
            ),
        ] {
            assert_eq!(shorten(name, COLUMNS, &place), said);
            assert_eq!(shorten(said, COLUMNS, &[]), said);
        }
    }

    #[test]
    fn the_name_of_the_function_is_the_last_to_go() {
        let name = "app::Store<app::Key<int, long>, std::string>::find<app::Key<int, long>>";
        for (columns, said) in [
            (71, name),
            (70, "app::Store<app::Key<...>, std::string>::find<app::Key<...>>"),
            (58, "app::Store<...>::find<app::Key<...>>"),
            (35, "app::Store<...>::find<...>"),
            (25, "app::...::find<...>"),
            (18, "...::find<...>"),
            (9, "find<...>"),
            (7, "f...d"),
        ] {
            let text = shorten(name, columns, &[]);
            assert!(columns_of(&text) <= columns, "{text} in {columns}");
            if columns > 7 {
                assert_eq!(text, said, "in {columns}");
            }
        }
    }

    #[test]
    fn names_are_bare_without_parameters() {
        for (function, name) in [
            (
                "app::Status app::Table::get<app::Block>(app::Slice const&, bool) const",
                "app::Table::get<app::Block>",
            ),
            ("open_table(THD*, TABLE_LIST*)", "open_table"),
            ("std::map<int, f(int)>::at(int)", "std::map<int, f(int)>::at"),
            ("X::operator()(int)", "X::operator()"),
            ("X::operator std::string() const", "X::operator std::string"),
            (
                "node::(anonymous namespace)::PlatformWorkerThread(void*)",
                "node::(anonymous namespace)::PlatformWorkerThread",
            ),
            (
                "void (anonymous namespace)::work<int>(int) [clone .isra.0]",
                "(anonymous namespace)::work<int>",
            ),
            (
                "long node::(anonymous namespace)::Pool<(anonymous namespace)::Task>::take(int)",
                "node::(anonymous namespace)::Pool<(anonymous namespace)::Task>::take",
            ),
            ("a::f(int) const::Guard::~Guard()", "a::f::Guard::~Guard"),
            ("decltype(x.y()) a::f<int>(int)", "a::f<int>"),
            ("main.(*Pool).run", "main.(*Pool).run"),
            ("main", "main"),
        ] {
            assert_eq!(bare(function), name);
        }
    }

    #[test]
    fn the_line_of_a_place_stays_whole() {
        for (place, columns, fits) in [
            (
                "taken in app::Store<app::Key>::find (a.cpp:14), readers",
                60,
                "taken in app::Store<app::Key>::find (a.cpp:14), readers",
            ),
            (
                "taken in app::Store<app::Key>::find (a.cpp:14), readers",
                50,
                "taken in app::Store<...>::find (a.cpp:14), readers",
            ),
            ("taken in app::find (/a/long/way/to/store.cpp:14)", 33, "taken in app::find (store.cpp:14)"),
            ("queue_lock (in server)", 60, "queue_lock (in server)"),
        ] {
            let text = fit(place, columns);
            assert_eq!(text, fits);
        }
        let long = "held from shop::Cache<int, std::string>::get<std::string (*)(int)> (shop.cpp:22)";
        assert!(fit(long, 40).ends_with(" (shop.cpp:22)"), "{}", fit(long, 40));
    }

    fn is_balanced(text: &str) -> bool {
        tokens(text).is_some()
    }

    fn texts() -> impl Strategy<Value = String> {
        // What names are made of, and anything.
        let pieces = [
            "std",
            "core",
            "alloc",
            "__cxx11",
            "__1",
            "basic_string",
            "char",
            "vector",
            "allocator<int>",
            "less<char>",
            "::",
            "::",
            "<",
            ">",
            "(",
            ")",
            "{",
            "}",
            "[",
            "]",
            ", ",
            " ",
            " const",
            "operator<<",
            "operator()",
            "->",
            "{lambda()#1}",
            "{{closure}}",
            "{closure#0}",
            "'lambda'",
            "$_0",
            "<T as U>",
            "<impl T for U>",
            "impl ",
            "h0123456789abcdef",
            "[abi:cxx11]",
            "(anonymous namespace)",
            "Mutex",
            "sync",
            "f",
            "g<h>",
            "x\u{301}",
            "\u{4e2d}",
            "\u{1f980}",
            "...",
            "{lambda in f}",
            "duration",
            "ratio<1l, 1000l>",
            "long",
            "std::",
            "&",
            "*",
            "&mut ",
        ];
        let of_pieces = proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 0..24);
        let nested = NAMES.map(|(name, _)| readable(name)).to_vec();
        prop_oneof![
            of_pieces.prop_map(|pieces| pieces.concat()),
            any::<String>(),
            proptest::sample::select(nested),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, rng_seed: RngSeed::Fixed(48), ..ProptestConfig::default() })]

        #[test]
        fn any_text_is_shortened_within_bounds(text in texts(), columns in 0usize..90) {
            let short = shorten(&text, columns, &[]);
            prop_assert!(columns_of(&short) <= columns, "{short:?} is wider than {columns}");
            prop_assert!(columns_of(&short) <= columns_of(&text), "{short:?} is wider than the name");
            prop_assert!(is_balanced(&short) || !is_balanced(&text) && short == text, "{short:?}");
            prop_assert_eq!(shorten(&short, columns, &[]), short);
            prop_assert!(columns_of(&fit(&text, columns)) <= columns);
        }

        #[test]
        fn places_of_lambdas_are_within_bounds(columns in 0usize..90, line in "[a-z]{1,20}\\.cpp:[0-9]{1,4}") {
            let place = [Some(line)];
            let text = "app::Pool::run<main::{lambda()#1}, main::{lambda()#2}>";
            let short = shorten(text, columns, &place);
            prop_assert!(columns_of(&short) <= columns && is_balanced(&short), "{}", short);
            prop_assert_eq!(shorten(&short, columns, &[]), short);
        }
    }
}
