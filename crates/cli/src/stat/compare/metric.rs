//! A number of the user's own: what `--metric` finds in what a program or its client prints.

use regex_lite::Regex;

/// An expression that finds it.
#[derive(Clone, Debug)]
pub(crate) struct Metric(Regex);

/// Parses the expression; its error is one line, for clap.
pub(crate) fn parse(text: &str) -> Result<Metric, String> {
    Regex::new(text).map(Metric).map_err(|error| format!("no regular expression: {error}"))
}

impl Metric {
    pub(super) fn expression(&self) -> &str {
        self.0.as_str()
    }

    /// The number of the last match, as sums come last: its first group, or all of it. Else why there is
    /// none; `whose` output it is.
    pub(super) fn read(&self, output: &str, whose: &str) -> Result<f64, String> {
        let Some(found) = self.0.captures_iter(output).last() else {
            let last = output.lines().rev().map(str::trim).find(|line| !line.is_empty());
            let last = last.map_or("there is none".to_owned(), |line| {
                format!("its last line is '{}'", line.chars().take(200).collect::<String>())
            });
            return Err(format!("--metric '{}' matches nothing in the output of {whose}: {last}", self.0));
        };
        let text = found.get(1).or(found.get(0)).map_or("", |found| found.as_str());
        number(text).ok_or_else(|| {
            format!(
                "--metric '{}' finds '{text}' in the output of {whose}, which is no number: put the digits alone \
                 into parentheses, as in 'rate: ([0-9.]+)'",
                self.0
            )
        })
    }
}

/// A number, with or without commas between thousands.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let whole = text.split('.').next().unwrap_or_default().trim_start_matches(['-', '+']);
    let mut groups = whole.split(',');
    let first = groups.next().is_some_and(|group| (1..=3).contains(&group.len()));
    let plain = match whole.contains(',') {
        true if first && groups.all(|group| group.len() == 3) => text.replace(',', ""),
        _ => text.to_owned(),
    };
    plain.parse().ok().filter(|number: &f64| number.is_finite())
}

#[cfg(test)]
mod tests {
    use super::{number, parse};

    #[test]
    fn the_last_match_counts_and_what_is_wrong_is_one_line() {
        let read = |expression: &str, output: &str| parse(expression).unwrap().read(output, "the client");
        assert_eq!(read("rate: ([0-9.]+)", "rate: 7\nrate: 8.5 a second\n"), Ok(8.5));
        assert_eq!(read("[0-9,]+", "in all 6,803"), Ok(6803.0));
        let none = read("rate: ([0-9]+)", "hello\n\nit failed \n \n").unwrap_err();
        assert!(none.contains("its last line is 'it failed'") && none.contains("the client"), "{none}");
        assert!(read("x", "").unwrap_err().contains("there is none"));
        assert!(read("rate: .*", "rate: 7").unwrap_err().contains("parentheses"));
        assert!(parse("(").is_err_and(|error| !error.contains('\n')));
    }

    #[test]
    fn numbers_may_have_commas() {
        let cases = [
            ("12", Some(12.0)),
            ("-1.5e3", Some(-1500.0)),
            ("1,234,567.8", Some(1_234_567.8)),
            ("1,23", None),
            ("inf", None),
            ("12k", None),
            ("", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(number(text), wanted, "{text}");
        }
    }
}
